/* test_powersgd.c: PowerSGD on a whole network: matrices and vectors in several buckets, averages
 * and sums. With as many columns as a matrix has rank nothing is lost, so that its gradients must
 * be those of the plain all-reduce, to rounding. (Its rules alone: test_semantics_hooks.)
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "ddp/features/powersgd_hook.h"
#include "ddp/reducer.h"

enum { STEPS = 5, START = 2, WEIGHTS = 4096 };

typedef struct Run {
    float gradients[STEPS][WEIGHTS];
    size_t count;
} Run;

static void copy_gradients(Rig *rig, Run *run, int step) {
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    run->count = 0;
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        CHECK(run->count + tensor_count(tensor) <= WEIGHTS, "more than %d weights", WEIGHTS);
        memcpy(run->gradients[step] + run->count, tensor->grad, tensor_bytes(tensor));
        run->count += tensor_count(tensor);
    }
    named_tensors_free(&parameters);
}

// The gradients of all steps, on batches that differ from step to step and from rank to rank.
static Run *train(ProcessGroup *group, Outcome *outcome, bool global,
                  const PowerSgdConfig *powersgd) {
    Rig self = rig_open(group, outcome), *rig = &self;
    Run *run = memory_zalloc(sizeof *run);
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.0005;
    config.global_normalization = global;
    rig_wrap(rig, test_model("mlp", 3, rig->device), &config);
    PowerSgd *power = NULL;
    if (powersgd) {
        power = power_sgd_create(ddp_reducer(rig->wrapper), powersgd, &outcome->error);
        EXPECT(power);
        EXPECT(ddp_register_comm_hook(rig->wrapper, power_sgd_hook(power), NULL) == 0);
    }
    size_t rows = test_rows(rig->rank), divisor = global ? test_global_rows(rig->world) : rows;
    for (int step = 0; step < STEPS; step++) {
        Error err = {0};
        module_zero_grad(rig->model);
        EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, step, rows, (double)divisor,
                             &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        copy_gradients(rig, run, step);
        if (power) EXPECT(power_sgd_iteration(power) == step + 1); // steps, not buckets
    }
    EXPECT(ddp_reducer(rig->wrapper)->slab.plan.bucket_count > 2);
    power_sgd_close(power);
    rig_close(rig);
    return run;
}

// How far apart, by the largest gradient.
static double distance(const Run *a, const Run *b, int step) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < a->count; i++) {
        double difference = fabs((double)a->gradients[step][i] - (double)b->gradients[step][i]);
        if (!(difference <= most)) most = difference; // also if it is NaN
        largest = fmax(largest, fabs((double)a->gradients[step][i]));
    }
    return largest > 1e-3 ? most / largest : INFINITY;
}

static void whole_model(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool global = *(const bool *)argument;
    PowerSgdConfig powersgd = power_sgd_config_default();
    powersgd.start_iteration = START;
    powersgd.min_compression_rate = 0.01; // also what grows by it
    Run *plain = train(group, outcome, global, NULL);
    static const size_t ranks[] = {64, 1}; // all there is, and a single column
    for (int i = 0; i < 2; i++) {
        size_t rank = powersgd.rank = ranks[i];
        Run *compressed = train(group, outcome, global, &powersgd);
        for (int step = 0; step < STEPS; step++) {
            double apart = distance(plain, compressed, step);
            bool fine = step < START ? apart == 0
                        : rank == 1  ? apart > 1e-2
                                     : apart > 0 && apart < 1e-3;
            if (!fine)
                problem(outcome, "global %d, %zu columns, step %d: %g apart", global, rank, step,
                        apart);
        }
        free(compressed);
    }
    free(plain);
}

// Before its start PowerSGD is the plain all-reduce in bits, and from then on it is not.
static void a_whole_model_with_all_columns(void **state) {
    (void)state;
    for (int global = 0; global <= 1; global++)
        for (int world = 2; world <= 3; world++) {
            bool argument = global;
            play_ranks(AS_THREADS, world, 60, whole_model, &argument, NULL);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_model_with_all_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
