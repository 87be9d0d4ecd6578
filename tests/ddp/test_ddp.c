/* test_ddp.c: DistributedDataParallel's gradients, weights and buffers equal, bit for bit, those of
 * one process that computes the ranks' shards in sequence and adds their gradients in rank order,
 * for all bucket sizes, with and without overlap, at any timing.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "common/nn/optimizer.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/reducer.h"

enum { STEPS = 4, PARAMETERS_MAX = 16, SEED = 40, LINE = MEMORY_ALIGNMENT / sizeof(float) };

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .momentum = 0.9};

// ---- the reference: one process, shards in sequence -----------------------------------------

typedef struct Oracle {
    const char *model;
    int world;
    bool global;     // global normalisation and sums; otherwise the mean of local means
    bool keep_grads; // no zero_grad before step 1, where the buckets are rebuilt
    size_t floats, buffer_bytes;
    float *initial, *final;          // weights, [floats]
    float *gradients[STEPS];         // reduced, [floats]
    char *initial_buffers;           // [buffer_bytes]
    char *buffers[STEPS][RANKS_MAX]; // of each rank, after its forward, [buffer_bytes]
    size_t parameters, ready_count, ready[PARAMETERS_MAX];
} Oracle;

// Copies the tensors (or their gradients) to `memory`, concatenated; with out = false, from it.
// Returns the bytes.
static size_t copy_tensors(Module *module, int which, bool grads, char *memory, bool out) {
    NamedTensors tensors = module_tensors(module, which);
    size_t used = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        Tensor *tensor = tensors.items[i].tensor;
        void *data = grads ? tensor->grad : tensor->data;
        size_t bytes = tensor_bytes(tensor);
        if (memory && out) memcpy(memory + used, data, bytes);
        if (memory && !out) memcpy(data, memory + used, bytes);
        if (memory && !out && grads) tensor->has_grad = true;
        used += bytes;
    }
    named_tensors_free(&tensors);
    return used;
}

static void *copy_of(Module *module, int which, bool grads) {
    char *memory = memory_zalloc(copy_tensors(module, which, grads, NULL, true));
    copy_tensors(module, which, grads, memory, true);
    return memory;
}

static void put(Module *module, int which, bool grads, void *memory) {
    copy_tensors(module, which, grads, memory, false);
}

typedef struct ReadyNote {
    Oracle *oracle;
    size_t index;
} ReadyNote;

static int record_ready(void *context, Tensor *tensor, Error *err) {
    (void)tensor, (void)err;
    ReadyNote *note = context;
    if (note->oracle->ready_count < note->oracle->parameters)
        note->oracle->ready[note->oracle->ready_count++] = note->index;
    return 0;
}

// Computes the reduced gradients of one step from all shards. Ends with rank 0's buffers in the
// model.
static void sum_shards(Oracle *oracle, Module *model, Tape *tape, int step, const float *before,
                       float *sum) {
    char *buffers = copy_of(model, MODULE_BUFFERS, false);
    for (int r = 0; r < oracle->world; r++) {
        put(model, MODULE_BUFFERS, false, buffers); // the broadcast before forward
        model->config[0] = (size_t)r % 2;
        module_zero_grad(model);
        if (before) put(model, MODULE_PARAMETERS, true, (void *)before);
        size_t rows = test_rows(r);
        double divisor = (double)(oracle->global ? test_global_rows(oracle->world) : rows);
        Error err = {0};
        CHECK_OK(test_backward(tape, model, r, step, rows, divisor, &err) == 0, err);
        float *shard = copy_of(model, MODULE_PARAMETERS, true);
        for (size_t i = 0; i < oracle->floats; i++) sum[i] = r == 0 ? shard[i] : sum[i] + shard[i];
        free(shard);
        oracle->buffers[step][r] = copy_of(model, MODULE_BUFFERS, false);
    }
    float factor = (float)(1.0 / oracle->world);
    for (size_t i = 0; i < oracle->floats && !oracle->global; i++) sum[i] *= factor;
    put(model, MODULE_BUFFERS, false, oracle->buffers[step][0]);
    free(buffers);
}

static void check_not_trivial(const float *gradient, size_t count) {
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(gradient[i]));
        zeros += gradient[i] == 0;
    }
    assert_true(zeros < count / 2);
}

static void run_oracle(Oracle *oracle) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    Module *model = test_model(oracle->model, SEED, device);
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer = optimizer_create(model, &SGD);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    ReadyNote notes[PARAMETERS_MAX];
    oracle->parameters = parameters.count;
    assert_true(parameters.count <= PARAMETERS_MAX);
    for (size_t i = 0; i < parameters.count; i++) {
        notes[i] = (ReadyNote){oracle, i};
        parameters.items[i].tensor->on_ready = record_ready;
        parameters.items[i].tensor->on_ready_context = &notes[i];
    }
    oracle->floats = copy_tensors(model, MODULE_PARAMETERS, false, NULL, true) / sizeof(float);
    oracle->buffer_bytes = copy_tensors(model, MODULE_BUFFERS, false, NULL, true);
    oracle->initial = copy_of(model, MODULE_PARAMETERS, false);
    oracle->initial_buffers = copy_of(model, MODULE_BUFFERS, false);
    for (int step = 0; step < STEPS; step++) {
        float *sum = memory_zalloc(oracle->floats * sizeof *sum);
        bool keep = step == 1 && oracle->keep_grads;
        sum_shards(oracle, model, tape, step, keep ? oracle->gradients[0] : NULL, sum);
        check_not_trivial(sum, oracle->floats);
        put(model, MODULE_PARAMETERS, true, sum);
        optimizer_step(optimizer, 0.1);
        oracle->gradients[step] = sum;
    }
    oracle->final = copy_of(model, MODULE_PARAMETERS, false);
    named_tensors_free(&parameters);
    optimizer_close(optimizer);
    tape_close(tape);
    module_close(model);
    device_close(device);
}

static void free_oracle(Oracle *oracle) {
    for (int step = 0; step < STEPS; step++) {
        free(oracle->gradients[step]);
        for (int r = 0; r < oracle->world; r++) free(oracle->buffers[step][r]);
    }
    free(oracle->initial);
    free(oracle->final);
    free(oracle->initial_buffers);
}

// ---- one rank -------------------------------------------------------------------------------

typedef struct Rank {
    const Oracle *oracle;
    const DdpConfig *config;
    Outcome *outcome;
    Device *device;
    Module *model, *wrapper;
    Tape *tape;
    Optimizer *optimizer;
    int rank;
} Rank;

static void compare(Rank *rank, int which, bool grads, const void *expected, const char *what,
                    int step) {
    size_t bytes = copy_tensors(rank->model, which, grads, NULL, true);
    char *actual = copy_of(rank->model, which, grads);
    if (memcmp(actual, expected, bytes) != 0)
        problem(rank->outcome, "%s of %s differ after step %d, cap %g MiB, %s, %s", what,
                rank->oracle->model, step, rank->config->bucket_cap_mb,
                rank->config->overlap ? "overlap" : "no overlap",
                rank->config->global_normalization ? "global" : "average");
    free(actual);
}

#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition)) problem(rank->outcome, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)

static size_t slab_floats(const NamedTensors *parameters) {
    size_t floats = 0;
    for (size_t i = 0; i < parameters->count; i++)
        floats += (tensor_count(parameters->items[i].tensor) + LINE - 1) / LINE * LINE;
    return floats;
}

// Buckets follow the ready order, and gradients are contiguous in them, padded to cache lines.
static void check_rebuilt(Rank *rank) {
    Reducer *reducer = ddp_reducer(rank->wrapper);
    const BucketPlan *plan = &reducer->slab.plan;
    NamedTensors parameters = module_tensors(rank->model, MODULE_PARAMETERS);
    BucketTensor tensors[PARAMETERS_MAX];
    for (size_t i = 0; i < parameters.count; i++)
        tensors[i] = (BucketTensor){tensor_bytes(parameters.items[i].tensor), 0};
    double cap = rank->config->bucket_cap_mb, mib = 1024 * 1024;
    const size_t limits[] = {(size_t)((cap < 0 ? 1 : cap) * mib),
                             (size_t)((cap < 0 ? 25 : cap) * mib)};
    BucketPlan wanted = buckets_assign(tensors, parameters.count, limits, 2, rank->oracle->ready);
    EXPECT(reducer->rebuilt);
    EXPECT(plan->bucket_count == wanted.bucket_count);
    if (cap == 0) EXPECT(plan->bucket_count == parameters.count);
    EXPECT(memcmp(plan->order, wanted.order, parameters.count * sizeof(size_t)) == 0);
    EXPECT(memcmp(plan->start, wanted.start, (wanted.bucket_count + 1) * sizeof(size_t)) == 0);
    const float *next = NULL;
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[plan->order[i]].tensor;
        EXPECT((uintptr_t)tensor->grad % MEMORY_ALIGNMENT == 0);
        EXPECT(!next || tensor->grad == next);
        next = tensor->grad + (tensor_count(tensor) + LINE - 1) / LINE * LINE;
        for (const float *pad = tensor->grad + tensor_count(tensor); pad < next; pad++)
            EXPECT(*pad == 0);
    }
    buckets_free(&wanted);
    named_tensors_free(&parameters);
}

static void check_memory(Rank *rank) {
    NamedTensors parameters = module_tensors(rank->model, MODULE_PARAMETERS);
    size_t weights = rank->oracle->floats * sizeof(float), buffers = rank->oracle->buffer_bytes;
    // Buffers count twice: their broadcast uses a staging copy.
    EXPECT(rank->device->bytes == weights + slab_floats(&parameters) * sizeof(float) + 2 * buffers);
    named_tensors_free(&parameters);
}

// Runs a forward without gradients on a separate tape.
static void evaluate(Rank *rank, Module *module, int step) {
    Error err = {0};
    Tape *tape = tape_create(rank->device, NULL);
    tape->recording = tape->training = false;
    test_loss(tape, module, rank->rank, step, 2, 2.0);
    if (tape_error(tape, &err) != 0) problem(rank->outcome, "evaluation: %s", err.message);
    tape_close(tape);
}

static void train_one_step(Rank *rank, int step) {
    const Oracle *oracle = rank->oracle;
    Error err = {0};
    size_t rows = test_rows(rank->rank);
    double divisor = (double)(oracle->global ? test_global_rows(oracle->world) : rows);
    if (step != 1 || !oracle->keep_grads) module_zero_grad(rank->model);
    tape_reset(rank->tape);
    Tensor *loss = test_loss(rank->tape, rank->wrapper, rank->rank, step, rows, divisor);
    if (step < 2) evaluate(rank, step == 0 ? rank->model : rank->wrapper, step);
    if (tape_error(rank->tape, &err) != 0 || tape_backward(rank->tape, loss, &err) != 0 ||
        ddp_finish_backward(rank->wrapper, NULL, &err) != 0)
        problem(rank->outcome, "step %d: %s", step, err.message);
    compare(rank, MODULE_PARAMETERS, true, oracle->gradients[step], "gradients", step);
    // The wrapper's evaluation at step 1 has broadcast rank 0's buffers.
    int owner = step == 1 ? 0 : rank->rank;
    compare(rank, MODULE_BUFFERS, false, oracle->buffers[step][owner], "buffers", step);
    optimizer_step(rank->optimizer, 0.1);
    ReducerTimes times = reducer_times(ddp_reducer(rank->wrapper));
    EXPECT(times.overlap <= times.backward_compute);
    EXPECT(times.overlap == 0 || rank->config->overlap);
    bool early = rank->config->overlap && rank->config->bucket_cap_mb == 0 && step > 0;
    EXPECT(times.overlap > 0 || !early);
}

static void train(Rank *rank) {
    const Oracle *oracle = rank->oracle;
    Reducer *reducer = ddp_reducer(rank->wrapper);
    check_memory(rank);
    compare(rank, MODULE_PARAMETERS, false, oracle->initial, "parameters", -1);
    compare(rank, MODULE_BUFFERS, false, oracle->initial_buffers, "buffers", -1);
    rank->optimizer = optimizer_create(rank->model, &SGD);
    size_t settled = 0;
    for (int step = 0; step < STEPS; step++) {
        train_one_step(rank, step);
        if (step == 0) EXPECT(!reducer->rebuilt && reducer->slab.plan.bucket_count == 1);
        if (step > 0) check_rebuilt(rank);
        if (step == 1) {
            settled = rank->device->bytes;
            device_reset_peak(rank->device);
        }
    }
    EXPECT(rank->device->bytes == settled && rank->device->peak_bytes == settled);
    Error err = {0};
    if (ddp_sync_buffers(rank->wrapper, 0, &err) != 0) problem(rank->outcome, "%s", err.message);
    compare(rank, MODULE_PARAMETERS, false, oracle->final, "weights", STEPS - 1);
    compare(rank, MODULE_BUFFERS, false, oracle->buffers[STEPS - 1][0], "buffers", STEPS);
    optimizer_close(rank->optimizer);
}

static void run_config(ProcessGroup *group, const Oracle *oracle, const DdpConfig *config,
                       Outcome *outcome) {
    Error err = {0};
    char name[16];
    Rank self = {.oracle = oracle, .config = config, .outcome = outcome, .rank = pg_rank(group)};
    Rank *rank = &self;
    snprintf(name, sizeof name, "cpu:%d", rank->rank);
    rank->device = device_open(name, &err);
    rank->model = test_model(oracle->model, SEED + (uint64_t)rank->rank, rank->device);
    rank->model->config[0] = (size_t)rank->rank % 2;
    if (rank->rank > 0) { // other initial weights than rank 0's, which the broadcast replaces
        float *drawn = copy_of(rank->model, MODULE_PARAMETERS, false);
        EXPECT(memcmp(drawn, oracle->initial, oracle->floats * sizeof *drawn) != 0);
        free(drawn);
    }
    rank->wrapper = distributed_data_parallel(rank->model, group, config, &err);
    if (rank->wrapper) {
        rank->tape = tape_create(rank->device, NULL);
        train(rank);
        tape_close(rank->tape);
        module_close(rank->wrapper);
    } else {
        problem(outcome, "%s", err.message);
        module_close(rank->model);
    }
    device_close(rank->device);
}

static const double CAPS[] = {-1, 0, 0.001, 0.01, 1, 25};

static void all_configs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Oracle *oracle = argument;
    for (size_t i = 0; i < sizeof CAPS / sizeof CAPS[0]; i++)
        for (int overlap = 0; overlap <= 1; overlap++) {
            const DdpConfig config = {.bucket_cap_mb = CAPS[i],
                                      .overlap = overlap,
                                      .broadcast_buffers = true,
                                      .global_normalization = oracle->global};
            if (!outcome->problem[0]) run_config(group, oracle, &config, outcome);
        }
}

// ---- tests ----------------------------------------------------------------------------------

static void run_world(Mode mode, const char *model, int world, bool global, bool keep_grads) {
    Oracle oracle = {.model = model, .world = world, .global = global, .keep_grads = keep_grads};
    run_oracle(&oracle);
    play_ranks(mode, world, 60, all_configs, &oracle, NULL);
    free_oracle(&oracle);
}

static void run_model(const char *model) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        for (int world = 1; world <= 5; world++) run_world(mode, model, world, true, false);
        // An average of 3 ranks is rounded; the reference rounds as the group does.
        for (int world = 1; world <= 4; world++) run_world(mode, model, world, false, false);
    }
}

static void test_mlp(void **state) {
    (void)state;
    run_model("mlp");
}

static void test_convnet_with_batch_norm(void **state) {
    (void)state;
    run_model("convnet");
}

static void test_layer_used_twice(void **state) {
    (void)state;
    run_model("shared");
}

static void test_weight_of_two_layers(void **state) {
    (void)state;
    run_model("tied");
}

static void test_ranks_with_other_ready_orders(void **state) {
    (void)state;
    run_world(AS_THREADS, "branches", 3, true, false);
    run_world(AS_THREADS, "branches", 2, false, false);
}

static void test_first_bucket_of_1_mib(void **state) {
    (void)state;
    run_world(AS_THREADS, "wide", 2, true, false);
}

static void test_defined_gradients_move_with_the_buckets(void **state) {
    (void)state;
    run_world(AS_THREADS, "shared", 2, true, true);
    run_world(AS_THREADS, "convnet", 3, false, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_convnet_with_batch_norm),
        cmocka_unit_test(test_layer_used_twice),
        cmocka_unit_test(test_weight_of_two_layers),
        cmocka_unit_test(test_ranks_with_other_ready_orders),
        cmocka_unit_test(test_first_bucket_of_1_mib),
        cmocka_unit_test(test_defined_gradients_move_with_the_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
