/* test_powersgd.c: PowerSGD on whole networks: matrices and vectors in several buckets, averages
 * and sums. With as many columns as the matrix's rank it is lossless, and gradients equal those of
 * the plain all-reduce within rounding; with fewer columns they equal those of the algorithm in
 * double. (Its other rules: test_semantics_hooks.)
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
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

// Trains and returns the gradients of all steps; batches differ between steps and ranks.
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
        if (power) EXPECT(power_sgd_iteration(power) == step + 1); // counts steps, not buckets
    }
    EXPECT(ddp_reducer(rig->wrapper)->slab.plan.bucket_count > 2);
    power_sgd_close(power);
    rig_close(rig);
    return run;
}

// Largest difference, relative to the largest gradient.
static double distance(const Run *a, const Run *b, int step) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < a->count; i++) {
        double difference = fabs((double)a->gradients[step][i] - (double)b->gradients[step][i]);
        if (!(difference <= most)) most = difference; // NaN counts as a difference
        largest = fmax(largest, fabs((double)a->gradients[step][i]));
    }
    return largest > 1e-3 ? most / largest : INFINITY;
}

static void whole_model(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool global = *(const bool *)argument;
    PowerSgdConfig powersgd = power_sgd_config_default();
    powersgd.start_iteration = START;
    powersgd.min_compression_rate = 0.01; // compresses all matrices, even if they grow
    Run *plain = train(group, outcome, global, NULL);
    static const size_t ranks[] = {64, 1}; // full rank; one column
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

// Before start_iteration PowerSGD equals the plain all-reduce bit for bit, afterwards it differs.
static void a_whole_model_with_all_columns(void **state) {
    (void)state;
    for (int global = 0; global <= 1; global++)
        for (int world = 2; world <= 3; world++) {
            bool argument = global;
            play_ranks(AS_THREADS, world, 60, whole_model, &argument, NULL);
        }
}

// ---- the algorithm in double --------------------------------------------------------------------

// Parameters with given gradients: of full rank, of lower rank than the columns, with zero rows (an
// embedding's unused tokens), tiny, all zeros, with three dimensions, of rank 1 with a first row
// whose rounding errors exceed the other rows; and a vector, which is not compressed.
typedef enum Given { FULL, LOW_RANK, ZERO_ROWS, TINY, ZEROS, CUBE, LARGE_ROW, VECTOR, GIVEN } Given;
enum { ROUNDS = 6, COLUMNS = 2, WORLD = 2, LARGEST = 128 };

static const struct {
    int ndim;
    size_t shape[3], n, m;
} SHAPES[GIVEN] = {[FULL] = {2, {12, 5}, 12, 5},    [LOW_RANK] = {2, {6, 9}, 6, 9},
                   [ZERO_ROWS] = {2, {8, 4}, 8, 4}, [TINY] = {2, {5, 11}, 5, 11},
                   [ZEROS] = {2, {4, 6}, 4, 6},     [CUBE] = {3, {3, 2, 4}, 3, 8},
                   [LARGE_ROW] = {2, {7, 6}, 7, 6}, [VECTOR] = {1, {7}, 7, 1}};

static double random_of(int step, int rank, int given, size_t i) {
    uint64_t salt = (uint64_t)((step * WORLD + rank) * GIVEN + given);
    return (double)rng_uniform(salt + 1, RNG_STREAM_TEST, i, -1, 1);
}

static float given_gradient(int step, int rank, Given given, size_t i) {
    const size_t m = SHAPES[given].m, row = i / m, column = i % m;
    const double rank_1 = ((double)row + 1) * random_of(9, 1, (int)given, column);
    const double sign = step % 2 ? -1 : 1 + rank;
    switch (given) {
    case LOW_RANK:
        return (float)(sign * rank_1);
    case LARGE_ROW:
        return (float)((row == 0 ? 1e9 : 1) * sign * rank_1);
    case ZERO_ROWS:
        return row % 4 == 0 ? 0 : (float)(sign * rank_1);
    case ZEROS:
        return 0;
    case TINY:
        return (float)(1e-15 * random_of(step, rank, (int)given, i));
    default:
        return (float)random_of(step, rank, (int)given, i);
    }
}

typedef struct Source { // a parameter's gradient in this step
    int step, rank;
    Given given;
} Source;

static void give_backward(Tape *tape, TapeNode *node) {
    Tensor *parameter = node->inputs[0];
    const Source *source = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, parameter, &accumulate);
    for (size_t i = 0; i < tensor_count(parameter); i++)
        grad[i] = given_gradient(source->step, source->rank, source->given, i);
    tape_grad_done(tape, parameter);
}

// x contains the step and the rank.
static Tensor *given_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *sum = NULL;
    for (int k = 0; k < GIVEN; k++) {
        Tensor *y = tape_tensor(tape, DTYPE_F32, 0, NULL),
               *parameter = module_parameter(self->children[k], 0);
        Source *source = tape_alloc(tape, sizeof *source);
        *source = (Source){(int)tensor_f32(x)[0], (int)tensor_f32(x)[1], (Given)k};
        tensor_f32(y)[0] = 0;
        tape_record(tape, "give", give_backward, y, 1, &parameter, source);
        sum = sum ? op_add(tape, sum, y) : y;
    }
    return sum;
}

static Module *given_model(Device *device) {
    Module *model = module_create("Given", given_forward);
    for (int k = 0; k < GIVEN; k++) {
        const char name[] = {(char)('a' + k), '\0'};
        Module *part = module_add(model, name, module_create("Part", given_forward));
        module_add_parameter(part, device, "p", SHAPES[k].ndim, SHAPES[k].shape);
    }
    return model;
}

typedef struct Reference { // state of one matrix
    double error[WORLD][LARGEST], q[LARGEST], gradient[LARGEST];
} Reference;

static void orthogonalize_columns(double *a, size_t rows, size_t columns) {
    double largest = 0;
    for (size_t c = 0; c < columns; c++) {
        double square = 0;
        for (size_t i = 0; i < rows; i++) square += a[i * columns + c] * a[i * columns + c];
        largest = fmax(largest, square);
    }
    for (size_t c = 0; c < columns; c++) {
        double square = 0;
        for (size_t b = 0; b < c; b++) {
            double dot = 0;
            for (size_t i = 0; i < rows; i++) dot += a[i * columns + b] * a[i * columns + c];
            for (size_t i = 0; i < rows; i++) a[i * columns + c] -= dot * a[i * columns + b];
        }
        for (size_t i = 0; i < rows; i++) square += a[i * columns + c] * a[i * columns + c];
        const double factor = square <= 1e-10 * largest ? 0 : 1 / sqrt(square);
        for (size_t i = 0; i < rows; i++) a[i * columns + c] *= factor;
    }
}

// Runs one compressed step of parameter k on all ranks. compressed: the number of compressed steps
// so far.
static void compress(Reference *r, const PowerSgdConfig *config, bool global, int step, Given k,
                     int compressed) {
    const size_t n = SHAPES[k].n, m = SHAPES[k].m, count = n * m;
    double matrix[WORLD][LARGEST], p[LARGEST] = {0}, sum[LARGEST] = {0};
    for (int w = 0; w < WORLD; w++)
        for (size_t i = 0; i < count; i++)
            matrix[w][i] = (double)given_gradient(step, w, k, i) + r->error[w][i];
    if (compressed == 0 || !config->warm_start)
        for (size_t i = 0; i < m * COLUMNS; i++)
            r->q[i] = (double)rng_normal(config->seed, RNG_STREAM_POWER_SGD,
                                         ((uint64_t)(compressed * GIVEN + (int)k) << 32) + i);
    orthogonalize_columns(r->q, m, COLUMNS);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t j = 0; j < m * WORLD; j++)
                p[i * COLUMNS + c] += matrix[j / m][i * m + j % m] * r->q[j % m * COLUMNS + c];
    orthogonalize_columns(p, n, COLUMNS);
    for (size_t j = 0; j < m; j++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t i = 0; i < n * WORLD; i++)
                sum[j * COLUMNS + c] += matrix[i / n][i % n * m + j] * p[i % n * COLUMNS + c];
    for (size_t i = 0; i < count; i++) {
        double product = 0;
        for (size_t c = 0; c < COLUMNS; c++)
            product += p[i / m * COLUMNS + c] * sum[i % m * COLUMNS + c];
        r->gradient[i] = global ? product : product / WORLD;
        for (int w = 0; w < WORLD && config->error_feedback; w++)
            r->error[w][i] = matrix[w][i] - product / WORLD;
    }
    for (size_t i = 0; i < m * COLUMNS; i++) r->q[i] = global ? sum[i] : sum[i] / WORLD;
}

typedef struct Setting {
    bool global, feedback, warm, several_buckets;
} Setting;

static void compare_given(Rig *rig, const Setting *s, const Reference *r, int step, Given k) {
    const Tensor *parameter = module_parameter(rig->model->children[k], 0);
    double apart = 0, size = 0;
    for (size_t i = 0; i < tensor_count(parameter); i++) {
        double want = r->gradient[i];
        if (step < START || k == VECTOR) {
            want = 0;
            for (int w = 0; w < WORLD; w++) want += (double)given_gradient(step, w, k, i);
            if (!s->global) want /= WORLD;
        }
        apart += pow((double)parameter->grad[i] - want, 2);
        size += want * want;
    }
    if (!(apart <= 1e-6 * size))
        problem(rig->outcome, "step %d, parameter %d: %g from a gradient of %g", step, (int)k,
                sqrt(apart), sqrt(size));
}

// Expected device memory: P and Q of every matrix, the uncompressed gradients, and the errors.
static size_t bytes_of_state(bool feedback) {
    size_t floats = 0;
    for (int k = 0; k < GIVEN; k++) {
        const size_t n = SHAPES[k].n, m = SHAPES[k].m;
        floats += k == VECTOR ? n : (n + m) * COLUMNS + (feedback ? n * m : 0);
    }
    return floats * sizeof(float);
}

static void follow_the_algorithm(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Setting *s = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = s->several_buckets ? 0 : 1;
    config.global_normalization = s->global;
    const PowerSgdConfig powersgd = {COLUMNS, START, 0.01, s->feedback, s->warm, 5};
    rig_wrap(rig, given_model(rig->device), &config);
    const size_t before = rig->device->bytes;
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, &outcome->error);
    EXPECT(rig->device->bytes - before == bytes_of_state(s->feedback));
    EXPECT(ddp_register_comm_hook(rig->wrapper, power_sgd_hook(power), NULL) == 0);
    Reference *references = memory_zalloc(GIVEN * sizeof *references);
    for (int step = 0; step < ROUNDS; step++) {
        Error err = {0};
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        const float place[] = {(float)step, (float)rig->rank};
        Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, place);
        Tensor *y = module_forward(rig->wrapper, rig->tape, x);
        EXPECT(tape_backward(rig->tape, y, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        for (int k = 0; k < GIVEN; k++) {
            if (step >= START && k != VECTOR)
                compress(&references[k], &powersgd, s->global, step, (Given)k, step - START);
            compare_given(rig, s, &references[k], step, (Given)k);
        }
    }
    free(references);
    power_sgd_close(power);
    rig_close(rig);
}

static void every_gradient_is_the_algorithms(void **state) {
    (void)state;
    for (int way = 0; way < 16; way++) {
        const Setting setting = {way & 1, way & 2, way & 4, way & 8};
        play_ranks(AS_THREADS, WORLD, 60, follow_the_algorithm, &setting, NULL);
    }
}

// ---- the choice of compressed matrices ----------------------------------------------------------

typedef struct Shape {
    size_t n, m;
    double rate;
    bool compressed; // has P, Q and the error
} Shape;

static void plan_one(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Shape *s = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    PowerSgdConfig powersgd = power_sgd_config_default();
    powersgd.min_compression_rate = s->rate;
    Module *model = module_create("One", given_forward);
    module_add_parameter(model, rig->device, "p", 2, (size_t[]){s->n, s->m});
    rig_wrap(rig, model, &config);
    const size_t before = rig->device->bytes, whole = s->n * s->m;
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, &outcome->error);
    const size_t floats = s->compressed ? s->n + s->m + whole : whole;
    EXPECT(rig->device->bytes - before == floats * sizeof(float));
    power_sgd_close(power);
    EXPECT(rig->device->bytes == before);
    rig_close(rig);
}

// A matrix is compressed if compression reduces it by more than min_compression_rate.
static void what_becomes_small_enough_is_compressed(void **state) {
    (void)state;
    static const Shape SHAPES_OF_ONE[] = {{4, 4, 2, false},    {4, 4, 1.99, true},
                                          {5, 4, 2, true},     {4, 5, 2, true},
                                          {100, 1, 0.5, true}, {100, 1, 1, false}};
    for (size_t i = 0; i < sizeof SHAPES_OF_ONE / sizeof *SHAPES_OF_ONE; i++)
        play_ranks(AS_THREADS, 1, 60, plan_one, &SHAPES_OF_ONE[i], NULL);
    const PowerSgdConfig config = power_sgd_config_default(); // PyTorch's defaults
    assert_true(config.rank == 1 && config.start_iteration == 1000 && config.seed == 0);
    assert_true(config.min_compression_rate == 2 && config.error_feedback && config.warm_start);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_model_with_all_columns),
        cmocka_unit_test(every_gradient_is_the_algorithms),
        cmocka_unit_test(what_becomes_small_enough_is_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
