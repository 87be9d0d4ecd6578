/* test_semantics_ddp.c: the core of DistributedDataParallel, by rows of PyTorch's own tests
 * (tests/semantics.md): equality with one process and the whole batch, construction, nested
 * outputs, ignored parameters, logging; and the experiment with seeds 2 and 200, against its
 * published numbers.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/captured.h"
#include "tests/rigs/ddp_toy.h"

#include "common/nn/tuple.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/features/logger.h"
#include "ddp/features/logging_data.h"
#include "ddp/reducer.h"
#include "ddp/sync_state.h"
#include "tests/rigs/temp_folder.h"

enum { ROWS = 3, STEPS = 5 };

// ---- the experiment with two seeds ------------------------------------------------------------

// One SGD step of loss (w x - t)^2 at x = 1: the gradient is 2 (w - t).
static void seed_step(Rig *rig, float wanted, float gradient, float after) {
    Tensor *weight = &rig->model->parameters[0].tensor;
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    Optimizer *optimizer = optimizer_create(rig->model, &sgd);
    const size_t shape[] = {1, 1};
    const float one = 1;
    Error err = {0};
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 2, shape, &one);
    Tensor *y = module_forward(rig->wrapper, rig->tape, x);
    Tensor *target = tape_input(rig->tape, DTYPE_F32, 2, shape, &wanted);
    EXPECT(tape_backward(rig->tape, op_squared_error(rig->tape, y, target, 1), &err) == 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
    EXPECT(weight->has_grad && weight->grad[0] == gradient);
    optimizer_step(optimizer, 1);
    EXPECT(tensor_f32(weight)[0] == after);
    optimizer_close(optimizer);
}

static void two_seeds(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    Module *model = matrix_model(rig->device, 1, 1, rig->rank == 0 ? 2 : 200);
    rig_wrap(rig, model, &config);
    EXPECT(tensor_f32(&model->parameters[0].tensor)[0] == 2); // rank 0's, on both ranks
    seed_step(rig, 1, 2, 0); // the published numbers: both ranks train on the same data
    seed_step(rig, 1, -2, 2);
    // Targets 1 and 5: the local gradients are 2 and -6, their mean is -2.
    float wanted = rig->rank == 0 ? 1 : 5;
    seed_step(rig, wanted, -2, 4);
    seed_step(rig, wanted, 2, 2);
    rig_close(rig);
}

static void row_21_two_seeds_2_and_200(void **state) {
    (void)state;
    play_both(2, two_seeds, NULL, NULL);
}

// ---- rows 21 to 23, 52: one process with the whole batch --------------------------------------

// Rows [first, first + count) of the batch of a step.
static int rows_backward(Tape *tape, Module *module, int step, size_t first, size_t count,
                         Error *err) {
    enum { MOST = 5 * ROWS };
    float images[MOST * IMAGE];
    int64_t labels[MOST];
    for (size_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)step * 64 + first + i;
        for (size_t e = 0; e < IMAGE; e++)
            images[i * IMAGE + e] = rng_uniform(1, RNG_STREAM_TEST, row * IMAGE + e, -1, 1);
        labels[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, row, CLASSES);
    }
    tape_reset(tape);
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){count, 1, 8, 8}, images);
    Tensor *y = module_forward(module, tape, x);
    Tensor *target = tape_input(tape, DTYPE_I64, 1, &count, labels);
    Tensor *loss = op_cross_entropy(tape, y, target, (double)count);
    return tape_error(tape, err) != 0 ? -1 : tape_backward(tape, loss, err);
}

static void compare_weights(Rig *rig, Module *alone) {
    NamedTensors mine = module_tensors(rig->model, MODULE_PARAMETERS);
    NamedTensors theirs = module_tensors(alone, MODULE_PARAMETERS);
    for (size_t i = 0; i < mine.count; i++) {
        const float *a = tensor_f32(mine.items[i].tensor), *b = tensor_f32(theirs.items[i].tensor);
        for (size_t e = 0; e < tensor_count(mine.items[i].tensor); e++)
            if (!(fabsf(a[e] - b[e]) <= 1e-5f + 1.3e-6f * fabsf(b[e])))
                problem(rig->outcome, "%s[%zu]: %g, not %g", mine.items[i].name, e, (double)a[e],
                        (double)b[e]);
    }
    named_tensors_free(&mine);
    named_tensors_free(&theirs);
}

typedef struct Training {
    const char *folder; // of the checkpoint that all ranks reload after step 2; NULL: none
    bool find_unused, static_graph;
} Training;

static void reload(Rig *rig, const char *folder) {
    Error err = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/model%d.safetensors", folder, rig->rank);
    if (safetensors_save_module(path, rig->model, NULL, 0, &err) != 0)
        problem(rig->outcome, "%s", err.message);
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    for (size_t i = 0; i < parameters.count; i++)
        rig->device->kernels->elementwise->fill(parameters.items[i].tensor->data, 7,
                                                tensor_count(parameters.items[i].tensor));
    EXPECT(!strchr(parameters.items[0].name, '/') && !strstr(parameters.items[0].name, "module."));
    named_tensors_free(&parameters);
    // Loaded through the wrapper: names have no prefix "module.".
    if (safetensors_load_module(path, rig->wrapper, &err) != 0)
        problem(rig->outcome, "%s", err.message);
}

static void train_both(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Training *training = argument;
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = {.ddp = ddp_config_default(),
                        .find_unused_parameters = training->find_unused,
                        .static_graph = training->static_graph};
    config.ddp.bucket_cap_mb = 0.002;
    rig_wrap_with(rig, test_model("shared", 5 + (uint64_t)rig->rank, rig->device), &config);
    Module *alone = test_model("shared", 5, rig->device);
    Optimizer *mine = optimizer_create(rig->model, &sgd), *theirs = optimizer_create(alone, &sgd);
    size_t share = ROWS, whole = ROWS * (size_t)rig->world;
    for (int step = 0; step < STEPS; step++) {
        Error err = {0};
        module_zero_grad(rig->model);
        module_zero_grad(alone);
        EXPECT(rows_backward(rig->tape, rig->wrapper, step, share * (size_t)rig->rank, share,
                             &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        EXPECT(rows_backward(rig->tape, alone, step, 0, whole, &err) == 0);
        optimizer_step(mine, 0.1);
        optimizer_step(theirs, 0.1);
        compare_weights(rig, alone);
        if (training->folder && step == 2) reload(rig, training->folder);
    }
    optimizer_close(mine);
    optimizer_close(theirs);
    module_close(alone);
    rig_close(rig);
}

static void row_21_equals_one_process_with_the_whole_batch(void **state) {
    (void)state;
    const Training training = {NULL, false, false};
    for (int world = 1; world <= 5; world++) play_both(world, train_both, &training, NULL);
}

static void row_22_52_save_and_reload(void **state) {
    const Training training = {*state, false, false};
    play_both(2, train_both, &training, NULL);
}

static void row_23_static_graph_and_find_unused(void **state) {
    (void)state;
    const Training fixed = {NULL, false, true}, unused = {NULL, true, false};
    for (int world = 1; world <= 3; world++) {
        play_both(world, train_both, &fixed, NULL);
        play_both(world, train_both, &unused, NULL);
    }
}

// ---- rows 25, 26, 32: construction ------------------------------------------------------------

static void zero_outputs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const double *cap = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = *cap;
    Error err = {0};
    rig_wrap(rig, matrix_model(rig->device, 3, 0, 1), &config);
    for (int step = 0; step < 3; step++) {
        EXPECT(matrix_backward(rig, rig->wrapper, 2, 3, 1, 1, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
    }
    rig_close(rig);
}

static void row_25_zero_output_features(void **state) {
    (void)state;
    for (double cap = -1; cap <= 0; cap++) play_both(2, zero_outputs, &cap, NULL);
}

// The value of element e of a tensor on a rank; all ranks and neighbouring tensors differ.
static double many_value(const Tensor *tensor, int rank, size_t e) {
    return rank * 1000 + (tensor->dtype == DTYPE_F32 ? (double)e : -(double)e);
}

static void fill_many(const NamedTensors *tensors, int rank) {
    for (size_t i = 0; i < tensors->count; i++) {
        const Tensor *tensor = tensors->items[i].tensor;
        for (size_t e = 0; e < tensor_count(tensor); e++) {
            double value = many_value(tensor, rank, e);
            if (tensor->dtype == DTYPE_F32)
                tensor_f32(tensor)[e] = (float)value;
            else
                ((int64_t *)tensor->data)[e] = (int64_t)value;
        }
    }
}

static bool holds_many(const NamedTensors *tensors, int rank) {
    for (size_t i = 0; i < tensors->count; i++) {
        const Tensor *tensor = tensors->items[i].tensor;
        for (size_t e = 0; e < tensor_count(tensor); e++) {
            double value = tensor->dtype == DTYPE_F32 ? (double)tensor_f32(tensor)[e]
                                                      : (double)((int64_t *)tensor->data)[e];
            if (value != many_value(tensor, rank, e)) return false;
        }
    }
    return true;
}

static void sync_states(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, (float)rig->rank), &config);
    EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, 0)); // rank 0's, after construction
    for (int task = 0; task < 2; task++)
        rig->device->kernels->elementwise->fill(rig_parameter(rig, task)->data,
                                                (float)(10 + rig->rank), 4);
    EXPECT(ddp_sync_module_states(rig->wrapper, 1, &outcome->error) == 0);
    for (int task = 0; task < 2; task++) EXPECT(all_equal(rig_parameter(rig, task)->data, 4, 11));
    rig_close(rig);
}

// ddp_sync_module_states also broadcasts buffers: batch norm's running statistics and its count.
static void sync_buffers(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, test_model("convnet", 5 + (uint64_t)rig->rank, rig->device), &config);
    NamedTensors state = module_tensors(rig->model, MODULE_STATE);
    fill_many(&state, rig->rank);
    EXPECT(ddp_sync_module_states(rig->wrapper, 1, &outcome->error) == 0);
    EXPECT(holds_many(&state, 1));
    fill_many(&state, rig->rank);
    EXPECT(ddp_sync_buffers(rig->wrapper, 1, &outcome->error) == 0);
    for (size_t i = 0; i < state.count; i++) { // parameters are unchanged
        const NamedTensors one = {.items = &state.items[i], .count = 1};
        EXPECT(holds_many(&one, state.items[i].tensor->requires_grad ? rig->rank : 1));
    }
    named_tensors_free(&state);
    rig_close(rig);
}

static void row_26_sync_module_states(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world++) {
        play_both(world, sync_states, NULL, NULL);
        play_both(world, sync_buffers, NULL, NULL);
    }
}

// Broadcasts tensors of both dtypes and many sizes through 256 bytes of staging memory.
static void coalesced(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Module *model = module_create("Many", NULL);
    static const size_t sizes[] = {1, 3, 60, 0, 64, 5, 200, 1, 1, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[MODULE_NAME];
        snprintf(name, sizeof name, "part%zu", i);
        Module *part = module_add(model, name, module_create("Part", NULL));
        module_add_buffer(part, rig->device, "f", DTYPE_F32, 1, &sizes[i]);
        module_add_buffer(part, rig->device, "n", DTYPE_I64, 1, &sizes[i]);
    }
    SyncState sync = sync_state_open(module_tensors(model, MODULE_BUFFERS), group, 256);
    EXPECT(sync.staging_bytes == 256 && sync.slices); // packed by one call
    for (int root = rig->world - 1; root >= 0; root--) {
        fill_many(&sync.tensors, rig->rank); // values differ between ranks in each round
        const uint64_t before = pg_sequence(group);
        EXPECT(sync_state_run(&sync, root, &outcome->error) == 0);
        // Each call takes as many tensors as fit into 256 bytes: {4, 8, 12, 24}, {240}, {480}, {0,
        // 0, 256}, ...
        EXPECT(pg_sequence(group) - before == (rig->world == 1 ? 0 : 9));
        EXPECT(holds_many(&sync.tensors, root));
    }
    sync_state_close(&sync);
    rig->model = model;
    rig_close(rig);
}

static void row_32_broadcast_coalesced(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) play_both(world, coalesced, NULL, NULL);
}

// ---- row 34: nested outputs, and a backward from each -----------------------------------------

// (mean of task 0, (mean of task 1, None))
static Tensor *nested_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *means[2];
    for (int k = 0; k < 2; k++)
        means[k] = op_toy_mean(tape, &self->children[k]->parameters[0].tensor, tensor_f32(x)[k]);
    Tensor *inner = tuple_create(tape, (Tensor *[]){means[1], NULL}, 2);
    return tuple_create(tape, (Tensor *[]){means[0], inner}, 2);
}

static void nested_outputs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool two_backwards = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    Module *model = toy_model(rig->device, 2, 1);
    model->forward = nested_forward;
    rig_wrap(rig, model, &config);
    for (int step = 0; step < 3; step++) {
        Error err = {0};
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        float factors[] = {4, 8 * (float)rig->rank};
        Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, factors);
        Tensor *y = module_forward(rig->wrapper, rig->tape, x);
        Tensor *first = y->items[0], *second = y->items[1]->items[0];
        EXPECT(y->item_count == 2 && !y->items[1]->items[1]);
        if (two_backwards)
            EXPECT(tape_backward(rig->tape, first, &err) == 0 &&
                   tape_backward(rig->tape, second, &err) == 0);
        else
            EXPECT(tape_backward(rig->tape, op_add(rig->tape, first, second), &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        EXPECT(grad_is(rig, 0, 1) && grad_is(rig, 1, 1));
    }
    rig_close(rig);
}

static void row_34_nested_outputs_and_a_backward_from_each(void **state) {
    (void)state;
    for (int two = 0; two <= 1; two++) {
        bool argument = two;
        play_both(2, nested_outputs, &argument, NULL);
    }
}

// ---- row 54: logging --------------------------------------------------------------------------

static void log_training(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0;
    rig_wrap(rig, toy_model(rig->device, 3, 1), &config);
    ddp_set_logging_rate(rig->wrapper, 1); // the minimum
    ddp_set_logging_rate(rig->wrapper, 3);
    ddp_register_comm_hook(rig->wrapper, comm_hook_all_reduce(group), NULL);
    for (int i = 0; i < 20; i++) {
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){1, 1, 1});
    }
    DdpLoggingData data = ddp_logging_data(rig->wrapper);
    EXPECT(ddp_logger(rig->wrapper)->samples == 13); // iterations 1 to 10, 12, 15 and 18
    EXPECT(data.iteration == 20 && data.world_size == rig->world && data.rank == rig->rank);
    EXPECT(data.num_parameter_tensors == 3 && data.total_parameter_size_bytes == 48);
    EXPECT(strcmp(data.module_name, "Toy") == 0 && strcmp(data.backend_name, "shm") == 0);
    EXPECT(strcmp(data.device_ids, rig->device->name) == 0 && !data.is_multi_device_module);
    EXPECT(strcmp(data.comm_hook, "allreduce") == 0 && data.bucket_cap_bytes == 0);
    EXPECT(data.has_rebuilt_buckets && !data.join_uneven_inputs && !data.has_sync_bn);
    EXPECT(data.gradient_as_bucket_view && !data.static_graph && !data.find_unused_parameters);
    EXPECT(strcmp(data.bucket_sizes, "48") == 0);
    EXPECT(strcmp(data.rebuilt_bucket_sizes, "16, 16, 16") == 0);
    EXPECT(strcmp(data.rebuilt_per_bucket_param_indices, "2, 1, 0") == 0); // backward's order
    EXPECT(strcmp(data.prev_iteration_grad_ready_order_indices, "2, 1, 0") == 0);
    EXPECT(data.forward_compute_time > 0 && data.backward_comm_time > 0);
    EXPECT(data.backward_compute_time >= data.backward_compute_comm_overlap_time);
    EXPECT(data.backward_comm_time >= data.backward_compute_comm_overlap_time);
    EXPECT(data.avg_backward_compute_time >= data.avg_backward_compute_comm_overlap_time);
    EXPECT(data.avg_forward_compute_time > 0 && data.unused_parameter_size == 0);
    char line[2000] = "";
    FILE *stream = fmemopen(line, sizeof line, "w");
    ddp_logging_print(&data, stream);
    fclose(stream);
    EXPECT(strstr(line, "comm_hook=allreduce") && strstr(line, "iteration=20"));
    Error err = {0};
    EXPECT(toy_step(rig, (float[]){1, 0, 1}, &err) != 0);
    data = ddp_logging_data(rig->wrapper);
    EXPECT(strstr(data.error, "Expected to have finished reduction"));
    rig_close(rig);
}

static void log_static_graph(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    config.static_graph = true;
    rig_wrap_with(rig, toy_model(rig->device, 1, 1), &config);
    const DdpLoggingData data = ddp_logging_data(rig->wrapper);
    EXPECT(data.static_graph && !data.find_unused_parameters);
    rig_close(rig);
}

// Iteration i leaves i % 4 tasks unused: the bytes of unused parameters identify the last sampled
// iteration. Average times are averages over the samples.
static void log_samples(ProcessGroup *group, const void *argument, Outcome *outcome) {
    enum { RATE = 4, TASKS = 4, ITERATIONS = 26, TIMES = 5 };
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    config.find_unused_parameters = true;
    rig_wrap_with(rig, toy_model(rig->device, TASKS, 1), &config);
    ddp_set_logging_rate(rig->wrapper, RATE);
    const DdpLoggingData first = ddp_logging_data(rig->wrapper);
    EXPECT(first.bucket_cap_bytes == 25 << 20); // the default
    EXPECT(first.find_unused_parameters && !first.static_graph);
    double sums[TIMES] = {0}, samples = 0;
    size_t unused = 0;
    for (size_t i = 1; i <= ITERATIONS; i++) {
        float factors[TASKS];
        for (size_t k = 0; k < TASKS; k++) factors[k] = k < i % TASKS ? 0 : 1;
        module_zero_grad(rig->model);
        toy_train(rig, factors);
        const DdpLoggingData data = ddp_logging_data(rig->wrapper);
        const uint64_t times[TIMES] = {
            data.forward_compute_time, data.backward_compute_time, data.backward_comm_time,
            data.backward_compute_comm_overlap_time, data.exposed_comm_time};
        const double averages[TIMES] = {data.avg_forward_compute_time,
                                        data.avg_backward_compute_time, data.avg_backward_comm_time,
                                        data.avg_backward_compute_comm_overlap_time,
                                        data.avg_exposed_comm_time};
        const bool sampled = i <= 10 || i % RATE == 0;
        const ReducerTimes now = reducer_times(ddp_reducer(rig->wrapper));
        if (sampled) {
            unused = i % TASKS * 4 * sizeof(float);
            samples++;
            for (int k = 0; k < TIMES; k++) sums[k] += (double)times[k];
            EXPECT(times[0] == now.forward_compute && times[1] == now.backward_compute);
            EXPECT(times[2] == now.backward_comm && times[3] == now.overlap);
            EXPECT(times[4] == now.exposed);
        }
        EXPECT(data.iteration == i && data.unused_parameter_size == unused);
        for (int k = 0; k < TIMES; k++)
            EXPECT(fabs(averages[k] - sums[k] / samples) <= 1e-9 * (1 + sums[k]));
    }
    rig_close(rig);
}

// TORCH_DISTRIBUTED_DEBUG=INFO prints the logging data in the first iteration; other levels print
// nothing.
static void print_data(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    for (int i = 0; i < 3; i++) {
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){1, 1});
    }
    rig_close(rig);
}

static void check_printed(const char *level, bool printed) {
    setenv("TORCH_DISTRIBUTED_DEBUG", level, 1);
    Captured captured = captured_begin();
    play_ranks(AS_THREADS, 1, 60, print_data, NULL, NULL);
    char *text = captured_end(&captured);
    unsetenv("TORCH_DISTRIBUTED_DEBUG");
    const char *line = strstr(text, "ddp module=Toy rank=0 world_size=1 backend=shm");
    assert_true(!!line == printed);
    if (printed) assert_non_null(strstr(line, "iteration=1 "));
    if (printed) assert_null(strstr(line + 1, "ddp module="));
    free(text);
}

static void row_54_logging_data(void **state) {
    (void)state;
    check_printed("OFF", false);
    check_printed("INFO", true);
    check_printed("DETAIL", true);
    play_both(2, log_training, NULL, NULL);
    play_ranks(AS_THREADS, 2, 60, log_samples, NULL, NULL);
    play_ranks(AS_THREADS, 1, 60, log_static_graph, NULL, NULL);
}

// ---- row 56: ignored parameters ---------------------------------------------------------------

static void ignore(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    static const char *const names[] = {"task1.p", NULL};
    DdpConfig config = ddp_config_default();
    config.ignored = names;
    rig_wrap(rig, toy_model(rig->device, 3, (float)rig->rank + 1), &config);
    EXPECT(all_equal(rig_parameter(rig, 0)->data, 4, 1));
    EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, (float)rig->rank + 1)); // not broadcast
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        float mine = 4 * (float)(rig->rank + 1);
        toy_train(rig, (float[]){mine, mine, 4});
        EXPECT(grad_is(rig, 0, 1.5f) && grad_is(rig, 1, mine / 4) && grad_is(rig, 2, 1));
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){4, 0, 4}); // an ignored parameter may be unused
        EXPECT(grad_is(rig, 0, 1) && grad_is_none(rig, 1));
    }
    EXPECT(ddp_sync_module_states(rig->wrapper, 1, NULL) == 0);
    EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, (float)rig->rank + 1));
    rig_close(rig);
}

// An ignored buffer is broadcast neither by the constructor nor by a forward.
static void ignore_buffer(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    static const char *const names[] = {"bn1.running_mean", NULL};
    DdpConfig config = ddp_config_default();
    config.ignored = names;
    Module *model = test_model("convnet", 5, rig->device), *norm = module_child(model, "bn1");
    Tensor *own = &norm->buffers[0].tensor, *common = &norm->buffers[1].tensor;
    for (int i = 0; i < 2; i++)
        rig->device->kernels->elementwise->fill(norm->buffers[i].tensor.data, (float)rig->rank + 1,
                                                tensor_count(own));
    rig_wrap(rig, model, &config);
    EXPECT(all_equal(own->data, tensor_count(own), (float)rig->rank + 1));
    EXPECT(all_equal(common->data, tensor_count(common), 1));
    for (int step = 0; step < 2; step++) {
        Error err = {0};
        rig->device->kernels->elementwise->fill(own->data, (float)rig->rank + 1, tensor_count(own));
        rig->tape->training = false; // the forward must not update the statistics
        EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, step, 2, 2, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        EXPECT(all_equal(own->data, tensor_count(own), (float)rig->rank + 1));
    }
    rig_close(rig);
}

static void row_56_ignored_parameters(void **state) {
    (void)state;
    play_both(2, ignore, NULL, NULL);
    play_both(2, ignore_buffer, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_21_two_seeds_2_and_200),
        cmocka_unit_test(row_21_equals_one_process_with_the_whole_batch),
        cmocka_unit_test_setup_teardown(row_22_52_save_and_reload, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(row_23_static_graph_and_find_unused),
        cmocka_unit_test(row_25_zero_output_features),
        cmocka_unit_test(row_26_sync_module_states),
        cmocka_unit_test(row_32_broadcast_coalesced),
        cmocka_unit_test(row_34_nested_outputs_and_a_backward_from_each),
        cmocka_unit_test(row_54_logging_data),
        cmocka_unit_test(row_56_ignored_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
