/* test_ddp_errors.c: errors of DistributedDataParallel, in PyTorch's words, on every rank: models
 * that differ, missing gradients, gradients that are completed twice; and batches that its Strategy
 * refuses. Frozen parameters and a rank without rows are accepted.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "common/train/checks.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/reducer.h"
#include "ddp/strategy_ddp.h"

typedef struct Change { // how rank 1's model differs from the others'
    const char *name;
    const char *message;
} Change;

static const DdpConfig LATE = {.bucket_cap_mb = -1, .broadcast_buffers = true};

static Device *open_device(ProcessGroup *group) {
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", pg_rank(group));
    return device_open(name, NULL);
}

// A Linear [2, 3] and a batch norm, changed as `change` says.
static Module *changed_model(const char *change, Device *device) {
    Module *model = layer_sequential("Model");
    bool wide = strcmp(change, "shape") == 0;
    module_add(model,
               strcmp(change, "name") == 0     ? "fc9"
               : strcmp(change, "letter") == 0 ? "gc1"
                                               : "fc1",
               layer_linear(device, wide ? 4 : 3, 2));
    Module *norm = module_add(model, "bn1", layer_batch_norm(device, 2));
    if (strcmp(change, "buffer") == 0)
        module_add_buffer(model, device, "extra", DTYPE_I64, 0, NULL);
    if (strcmp(change, "count") == 0) module_add(model, "fc2", layer_linear(device, 3, 2));
    if (strcmp(change, "frozen") == 0) norm->parameters[1].tensor.requires_grad = false;
    if (strcmp(change, "all frozen") == 0) {
        NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
        for (size_t i = 0; i < parameters.count; i++)
            parameters.items[i].tensor->requires_grad = false;
        named_tensors_free(&parameters);
    }
    return model;
}

static void construct(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const char *change = argument;
    bool changed = pg_rank(group) == 1 || strcmp(change, "all frozen") == 0;
    Device *device = open_device(group);
    Module *model = changed_model(changed ? change : "", device);
    Module *wrapper = distributed_data_parallel(model, group, &LATE, &outcome->error);
    if (wrapper) problem(outcome, "models that differ by %s were accepted", change);
    module_close(wrapper ? wrapper : model);
    if (device->bytes) problem(outcome, "%zu bytes are left", device->bytes);
    device_close(device);
}

static void row_24_27_28_every_rank_names_the_difference(void **state) {
    (void)state;
#define WHERE "DDP expects same model across all ranks: rank 1 has "
    static const Change changes[] = {
        {"shape", WHERE "fc1.weight [2, 4] where rank 0 has fc1.weight [2, 3]"},
        {"name", WHERE "fc9.weight [2, 3] where rank 0 has fc1.weight [2, 3]"},
        {"letter", WHERE "gc1.weight [2, 3] where rank 0 has fc1.weight [2, 3]"},
        {"buffer", WHERE "buffer extra [] I64 where rank 0 has buffer bn1.running_mean [2]"},
        {"frozen", WHERE "bn1.bias [2] without gradient where rank 0 has bn1.bias [2]"},
        {"count", "DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 1 "
                  "has inconsistent 6 params."},
        {"all frozen", "DistributedDataParallel is not needed when a module doesn't have any "
                       "parameter that requires a gradient."},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 3, 30, construct, changes[i].name, outcomes);
        for (int r = 0; r < 3; r++) {
            assert_string_equal(outcomes[r].error.message, changes[i].message);
            assert_int_equal(outcomes[r].error.status, STATUS_FAILED);
        }
    }
}

// Rank 3's model differs from those of ranks 0 to 2: rank 3 is named.
static void construct_last(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Device *device = open_device(group);
    Module *model = changed_model(pg_rank(group) == 3 ? "shape" : "", device);
    if (distributed_data_parallel(model, group, &LATE, &outcome->error))
        problem(outcome, "models that differ were accepted");
    module_close(model);
    device_close(device);
}

static void row_28_the_rank_that_differs_is_named(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 4, 30, construct_last, NULL, outcomes);
    for (int r = 0; r < 4; r++)
        check_message(&outcomes[r].error, "rank 3 has fc1.weight [2, 4] where rank 0 has");
}

// One rank's model has a further buffer at the end; the other tensors agree.
static void construct_longer(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const int longer = *(const int *)argument;
    Device *device = open_device(group);
    Module *model = layer_sequential("Model");
    module_add(model, "fc1", layer_linear(device, 3, 2));
    if (pg_rank(group) == longer) module_add_buffer(model, device, "extra", DTYPE_F32, 0, NULL);
    distributed_data_parallel(model, group, &LATE, &outcome->error);
    module_close(model);
    device_close(device);
}

static void test_one_buffer_more(void **state) {
    (void)state;
    static const char *const SAYS[] = {WHERE "nothing where rank 0 has buffer extra []",
                                       WHERE "buffer extra [] where rank 0 has nothing"};
    for (int longer = 0; longer < 2; longer++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 2, 30, construct_longer, &longer, outcomes);
        for (int r = 0; r < 2; r++) assert_string_equal(outcomes[r].error.message, SAYS[longer]);
    }
}

// One rank aborts while the others receive its buffers (rank 0) or wait for rank 0's.
static void sync_with_a_broken_group(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Device *device = open_device(group);
    Module *model = changed_model("", device);
    Module *wrapper = distributed_data_parallel(model, group, &LATE, &outcome->error);
    if (!wrapper || ddp_sync_buffers(wrapper, 0, &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
    Error cause = {0};
    error_set(&cause, STATUS_FAILED, "the disk is full");
    if (pg_rank(group) == *(const int *)argument) pg_abort(group, &cause);
    for (int again = 0; again < 2; again++) {
        outcome->error = (Error){0};
        if (ddp_sync_buffers(wrapper, 0, &outcome->error) == 0) problem(outcome, "it succeeded");
    }
    module_close(wrapper);
    device_close(device);
}

static void test_buffers_of_a_broken_group(void **state) {
    (void)state;
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 2, 30, sync_with_a_broken_group, &gives_up, outcomes);
        for (int r = 0; r < 2; r++) check_message(&outcomes[r].error, "the disk is full");
    }
}

// ---- missing gradients, gradients completed twice -------------------------------------------

typedef struct Bench { // a rank and its wrapped model
    Device *device;
    Module *model, *wrapper;
    Tape *tape;
} Bench;

static Bench bench_open(ProcessGroup *group, const char *model, const DdpConfig *config,
                        Outcome *outcome) {
    Bench bench = {.device = open_device(group)};
    bench.model = test_model(model, 1, bench.device);
    if (strcmp(model, "branches") == 0) { // two layers that no forward uses
        module_add(bench.model, "spare", layer_linear(bench.device, 3, 2));
        module_add(bench.model, "other", layer_linear(bench.device, 3, 2));
    }
    bench.wrapper = distributed_data_parallel(bench.model, group, config, &outcome->error);
    CHECK(bench.wrapper, "%s", outcome->error.message);
    bench.tape = tape_create(bench.device, NULL);
    return bench;
}

static void bench_close(Bench *bench) {
    tape_close(bench->tape);
    module_close(bench->wrapper);
    device_close(bench->device);
}

static void leave_unused(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const DdpConfig *config = argument;
    int rank = pg_rank(group);
    Bench bench = bench_open(group, "branches", config, outcome);
    if (test_backward(bench.tape, bench.wrapper, rank, 0, 2, 2, &outcome->error) != 0)
        problem(outcome, "backward: %s", outcome->error.message);
    if (ddp_finish_backward(bench.wrapper, NULL, &outcome->error) == 0)
        problem(outcome, "parameters without a gradient went unnoticed");
    // The next forward fails with the same error.
    Error again = {0};
    tape_reset(bench.tape);
    test_loss(bench.tape, bench.wrapper, rank, 1, 2, 2);
    if (tape_error(bench.tape, &again) == 0 || !strstr(again.message, "Expected to have finished"))
        problem(outcome, "the next forward says: %s", again.message);
    bench_close(&bench);
}

static void row_42_unused_parameters_are_named(void **state) {
    (void)state;
    const DdpConfig early = ddp_config_default();
    const DdpConfig *configs[] = {&LATE, &early};
    for (int i = 0; i < 2; i++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 2, 30, leave_unused, configs[i], outcomes);
        for (int r = 0; r < 2; r++) {
            char named[160];
            check_message(&outcomes[r].error,
                          "Expected to have finished reduction in the prior iteration before "
                          "starting a new one.");
            snprintf(named, sizeof named,
                     "Parameters which did not receive grad for rank %d: spare.weight, "
                     "spare.bias, other.weight, other.bias",
                     r);
            check_message(&outcomes[r].error, named);
            assert_null(strstr(outcomes[r].error.message, "left.weight"));
        }
    }
}

static void backward_twice(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group);
    Bench bench = bench_open(group, "mlp", &LATE, outcome);
    for (int step = 0; step < 2; step++) { // step 1 outside the wrapper
        Module *module = step == 0 ? bench.wrapper : bench.model;
        if (test_backward(bench.tape, module, rank, step, 2, 2, &outcome->error) != 0)
            problem(outcome, "backward: %s", outcome->error.message);
    }
    if (ddp_finish_backward(bench.wrapper, NULL, &outcome->error) == 0)
        problem(outcome, "a second backward went unnoticed");
    bench_close(&bench);
}

static void test_gradient_ready_twice(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 2, 30, backward_twice, NULL, outcomes);
    for (int r = 0; r < 2; r++) {
        check_message(&outcomes[r].error, "Expected to mark a variable ready only once.");
        check_message(&outcomes[r].error, "with name fc3."); // the last layer is ready first
    }
}

static void forward_again(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group);
    Bench bench = bench_open(group, "mlp", &LATE, outcome);
    // A forward without a backward is no error.
    test_loss(bench.tape, bench.wrapper, rank, 0, 2, 2);
    if (test_backward(bench.tape, bench.wrapper, rank, 1, 2, 2, &outcome->error) != 0)
        problem(outcome, "backward: %s", outcome->error.message);
    tape_reset(bench.tape);
    test_loss(bench.tape, bench.wrapper, rank, 2, 2, 2);
    tape_error(bench.tape, &outcome->error);
    bench_close(&bench);
}

static void test_forward_before_the_gradients_are_waited_for(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 2, 30, forward_again, NULL, outcomes);
    for (int r = 0; r < 2; r++) {
        check_message(&outcomes[r].error, "Expected to have finished reduction in the prior");
        check_message(&outcomes[r].error, "ddp_finish_backward was not called");
    }
}

// ---- accepted cases -------------------------------------------------------------------------

static void train_frozen(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group), world = pg_size(group);
    DdpConfig config = ddp_config_default();
    config.global_normalization = true;
    Device *device = open_device(group);
    Module *model = test_model("mlp", 1, device);
    Tensor *frozen = &module_child(model, "fc2")->parameters[0].tensor;
    frozen->requires_grad = false;
    Module *wrapper = distributed_data_parallel(model, group, &config, &outcome->error);
    CHECK(wrapper, "%s", outcome->error.message);
    Tape *tape = tape_create(device, NULL);
    for (int step = 0; step < 3; step++) {
        size_t rows = rank == world - 1 ? 0 : 3; // the last rank has no rows
        module_zero_grad(model);
        if (test_backward(tape, wrapper, rank, step, rows, 3, &outcome->error) != 0 ||
            ddp_finish_backward(wrapper, NULL, &outcome->error) != 0)
            problem(outcome, "step %d: %s", step, outcome->error.message);
    }
    const Tensor *weight = &module_child(model, "fc3")->parameters[0].tensor;
    if (frozen->has_grad || !weight->has_grad) problem(outcome, "the wrong ones have gradients");
    float sum = 0;
    for (size_t i = 0; i < tensor_count(weight); i++) sum += fabsf(weight->grad[i]);
    if (!(sum > 0)) problem(outcome, "the gradient is %g", (double)sum);
    outcome->number = (long)(sum * 1e6f); // equal on all ranks
    tape_close(tape);
    module_close(wrapper);
    device_close(device);
}

static void test_frozen_parameters_and_empty_shares(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 2, 30, train_frozen, NULL, outcomes);
    assert_int_equal(outcomes[0].number, outcomes[1].number);
}

static void evaluate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Bench bench = bench_open(group, "convnet", &LATE, outcome);
    Tensor *mean = &module_child(bench.model, "bn1")->buffers[0].tensor;
    bench.device->kernels->elementwise->fill(mean->data, (float)pg_rank(group) + 0.5f,
                                             tensor_count(mean));
    bench.tape->recording = bench.tape->training = false;
    test_loss(bench.tape, bench.wrapper, pg_rank(group), 0, 2, 2);
    if (tape_error(bench.tape, &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
    if (tensor_f32(mean)[0] != 0.5f)
        problem(outcome, "the buffer is %g", (double)*tensor_f32(mean));
    bench_close(&bench);
}

// As in PyTorch, a forward of the wrapper in evaluation broadcasts buffers and expects no backward.
static void row_53_evaluating_through_the_wrapper(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 3, 30, evaluate, NULL, NULL);
}

// ---- the strategy ---------------------------------------------------------------------------

enum { WORLD = 4, SAMPLES = 89 };

typedef struct StrategyRank {
    pthread_t thread;
    ProcessGroup *group;
    bool global;
    bool blocked;
    bool synced; // the model has a SyncBatchNorm
    size_t global_batch;
    Error error;
    size_t rows, first_batch; // of the created sampler
    bool global_mean;
    double sum;
    const char *unrecordable, *unrecordable_later; // later: with a further DdpIteration
} StrategyRank;

static void try_job(StrategyRank *rank, Job *job) {
    Strategy *strategy = job->strategy;
    const Sampler *sampler = strategy->sampler;
    rank->rows = sampler->start[sampler->batch_count];
    rank->first_batch = sampler->start[1];
    rank->global_mean = strategy->global_mean;
    rank->sum = (double)job->rank + 1;
    strategy_sum(strategy, &rank->sum, 1, &rank->error);
    strategy_barrier(strategy, &rank->error);
    strategy->sync_buffers(strategy, &rank->error);
    rank->unrecordable = job->unrecordable(job);
    reducer_add_iteration(ddp_reducer(strategy->module), (DdpIteration){.name = "a late one"});
    rank->unrecordable_later = job->unrecordable(job);
}

static void *make_sampler(void *context) {
    StrategyRank *rank = context;
    DdpConfig config = ddp_config_default();
    config.global_normalization = rank->global;
    const Rendezvous me = {.rank = pg_rank(rank->group), .world_size = WORLD};
    SamplerOfRank *of_rank = rank->blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler =
        of_rank(SAMPLES, rank->global_batch, WORLD, me.rank, true, false, 3, &rank->error);
    if (!sampler) {
        pg_close(rank->group);
        return NULL;
    }
    Device *device = open_device(rank->group);
    Module *model = rank->synced ? changed_model("", device) : test_model("mlp", 1, device);
    if (rank->synced)
        must_get(sync_batch_norm_convert(model, rank->group, &rank->error), &rank->error);
    Module *wrapper = must_get(distributed_data_parallel(model, rank->group, &config, &rank->error),
                               &rank->error);
    Job *job = job_ddp(strategy_ddp(wrapper, device, sampler), &me);
    if (checks_shares(job->strategy, &rank->error) == 0) try_job(rank, job);
    job->close(job);
    return NULL;
}

static void run_strategy(StrategyRank ranks[WORLD], bool blocked, size_t global_batch,
                         bool global) {
    ProcessGroup *groups[WORLD];
    Error err = {0};
    CHECK_OK(init_thread_groups(WORLD, 30, groups, &err) == 0, err);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (StrategyRank){.group = groups[r],
                                  .global = global,
                                  .blocked = blocked,
                                  .synced = ranks[r].synced,
                                  .global_batch = global_batch};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, make_sampler, &ranks[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) pthread_join(ranks[r].thread, NULL);
}

static void test_strategy_refuses_biased_means(void **state) {
    (void)state;
    StrategyRank ranks[WORLD] = {0};
    run_strategy(ranks, true, 60, false); // batches of 60 and 29 rows
    for (int r = 0; r < WORLD; r++) {
        assert_string_equal(ranks[r].error.message, "the last batch of 29 rows does not divide "
                                                    "among 4 ranks: use --normalize global");
        assert_int_equal(ranks[r].error.status, STATUS_USAGE);
    }
    run_strategy(ranks, true, 30, false);
    assert_string_equal(ranks[0].error.message,
                        "a batch of 30 rows does not divide among 4 ranks: use --normalize global");
    run_strategy(ranks, false, 30, false);
    check_message(&ranks[3].error, "--global-batch 30 is not divisible by the world size 4");
}

static void test_strategy_shares_and_sums(void **state) {
    (void)state;
    StrategyRank ranks[WORLD] = {0};
    run_strategy(ranks, true, 30, true);
    size_t rows = 0;
    for (int r = 0; r < WORLD; r++) {
        CHECK_OK(ranks[r].error.status == STATUS_OK, ranks[r].error);
        assert_int_equal(ranks[r].first_batch, r < 3 ? 8 : 6);
        assert_true(ranks[r].global_mean && ranks[r].sum == 10);
        rows += ranks[r].rows;
    }
    assert_int_equal(rows, SAMPLES);
    run_strategy(ranks, false, 60, false);
    for (int r = 0; r < WORLD; r++) {
        CHECK_OK(ranks[r].error.status == STATUS_OK, ranks[r].error);
        assert_true(ranks[r].rows == 23 && ranks[r].first_batch == 15);
        assert_true(!ranks[r].global_mean && ranks[r].sum == 10);
        assert_null(ranks[r].unrecordable);
        assert_string_equal(ranks[r].unrecordable_later, "a late one");
    }
}

// The model contains a SyncBatchNorm, without --sync-batch-norm.
static void test_strategy_names_sync_batch_norm(void **state) {
    (void)state;
    StrategyRank ranks[WORLD] = {0};
    for (int r = 0; r < WORLD; r++) ranks[r].synced = true;
    run_strategy(ranks, true, 60, true);
    for (int r = 0; r < WORLD; r++) {
        CHECK_OK(ranks[r].error.status == STATUS_OK, ranks[r].error);
        assert_string_equal(ranks[r].unrecordable, "SyncBatchNorm");
    }
}

// Wrapping a wrapped module is an error: the second wrapper would take over its gradients.
static void wrap_twice(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Error err = {0};
    Device *device = open_device(group);
    Module *inner = distributed_data_parallel(changed_model("", device), group, &LATE, &err);
    Module *outer = distributed_data_parallel(inner, group, &LATE, &err);
    if (outer || !strstr(err.message, "fc1.weight is in another wrapper already"))
        problem(outcome, "a wrapper in a wrapper: %s", err.message);
    module_close(outer ? outer : inner);
    device_close(device);
}

static void test_a_wrapper_is_not_wrapped(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 30, wrap_twice, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_24_27_28_every_rank_names_the_difference),
        cmocka_unit_test(row_28_the_rank_that_differs_is_named),
        cmocka_unit_test(test_one_buffer_more),
        cmocka_unit_test(test_a_wrapper_is_not_wrapped),
        cmocka_unit_test(test_buffers_of_a_broken_group),
        cmocka_unit_test(row_42_unused_parameters_are_named),
        cmocka_unit_test(test_gradient_ready_twice),
        cmocka_unit_test(test_forward_before_the_gradients_are_waited_for),
        cmocka_unit_test(test_frozen_parameters_and_empty_shares),
        cmocka_unit_test(row_53_evaluating_through_the_wrapper),
        cmocka_unit_test(test_strategy_refuses_biased_means),
        cmocka_unit_test(test_strategy_shares_and_sums),
        cmocka_unit_test(test_strategy_names_sync_batch_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
