/* test_sync_batch_norm_ddp.c: models with SyncBatchNorm in DistributedDataParallel, trained for
 * some steps, equal one device with the whole batch: parameters, running statistics and the last
 * gradients.
 *
 * DDP does not broadcast rank 0's buffers here, so each rank computes its running statistics; they
 * must have equal bits on all ranks. Row numbers are those of tests/semantics.md.
 */
#include "tests/rigs/sync_norm_rig.h"

#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/sync_batch_norm.h"

// Tolerance after some steps of training, which amplify a layer's few roundings.
static const double TRAINED = 2e-5;

enum { PIXELS = 36, CLASSES = 4, STEPS = 5, ROWS_MAX = 16 };

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .momentum = 0.9};

// A trunk and the sum of two heads, one of them with a batch norm. config[0] selects the head that
// runs first: it changes the ready order, and the position of the layer's own collective.
static Tensor *forked_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y[2];
    x = module_forward(module_child(self, "trunk"), tape, x);
    for (size_t i = 0; i < 2; i++) {
        size_t head = (i + self->config[0]) % 2;
        y[head] = module_forward(self->children[1 + head], tape, x);
    }
    return op_add(tape, y[0], y[1]);
}

static Module *forked_model(Device *device) {
    Module *model = module_create("Forked", forked_forward);
    Module *trunk = module_add(model, "trunk", layer_sequential("Sequential"));
    module_add(trunk, "flatten", layer_flatten());
    module_add(trunk, "fc", layer_linear(device, PIXELS, 8));
    Module *left = module_add(model, "left", layer_sequential("Sequential"));
    module_add(left, "bn", layer_batch_norm(device, 8));
    module_add(left, "fc", layer_linear(device, 8, CLASSES));
    module_add(model, "right", layer_linear(device, 8, CLASSES));
    return model;
}

// name: "flat", batch norm of matrices; "images", of images; or "forked".
static Module *norm_model(const char *name, Device *device, uint64_t seed) {
    bool images = strcmp(name, "images") == 0;
    Module *model;
    if (strcmp(name, "forked") == 0) {
        model = forked_model(device);
    } else {
        model = layer_sequential("Sequential");
        if (images) module_add(model, "conv", layer_conv2d(device, 1, 6, 3, 1, 1, false));
        if (images) module_add(model, "bn1", layer_batch_norm(device, 6));
        if (images) module_add(model, "relu1", layer_relu());
        module_add(model, "flatten", layer_flatten());
        module_add(model, "fc1", layer_linear(device, images ? 6 * PIXELS : PIXELS, 7));
        module_add(model, "bn2", layer_batch_norm(device, 7));
        module_add(model, "relu2", layer_relu());
        module_add(model, "fc2", layer_linear(device, 7, CLASSES));
    }
    module_initialize(model, seed);
    return model;
}

// Runs forward and backward of rows [first, first + rows) of a step's global batch.
static int model_backward(Module *model, Tape *tape, int step, size_t first, size_t rows,
                          double divisor, Error *err) {
    float images[ROWS_MAX * PIXELS];
    int64_t labels[ROWS_MAX];
    uint64_t from = (uint64_t)step * ROWS_MAX + first;
    for (size_t i = 0; i < rows * PIXELS; i++)
        images[i] = rng_uniform(3, RNG_STREAM_TEST, from * PIXELS + i, -1, 1);
    for (size_t i = 0; i < rows; i++)
        labels[i] = (int64_t)(rng_u64(4, RNG_STREAM_TEST, from + i) % CLASSES);
    tape_reset(tape);
    module_zero_grad(model);
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){rows, 1, 6, 6}, images);
    Tensor *logits = module_forward(model, tape, x);
    Tensor *loss =
        op_cross_entropy(tape, logits, tape_input(tape, DTYPE_I64, 1, &rows, labels), divisor);
    if (tape_error(tape, err) != 0) return -1;
    return tape_backward(tape, loss, err);
}

// How local losses combine to one device's loss.
typedef enum Scaling {
    LOCAL_MEANS,  // averaged; all shares have the same size
    SCALED_MEANS, // times W b_r / B, then averaged: PyTorch's rule for uneven shares
    GLOBAL_MEAN,  // divided by B, summed
} Scaling;

typedef struct Training {
    const char *model;
    Shares shares;
    Scaling scaling;
    int steps;
    double bucket_cap_mb;
    float *state, *gradients; // of one device, at the end: parameters and float buffers; gradients
} Training;

static double divisor_of(const Training *t, size_t rows) {
    double all = (double)all_rows(&t->shares);
    if (t->scaling == LOCAL_MEANS) return (double)rows;
    return t->scaling == SCALED_MEANS ? all / t->shares.world : all;
}

// Returns all floats of the tensors, concatenated, to be freed.
static float *floats_of(Module *module, int which, bool grads, size_t *count) {
    NamedTensors tensors = module_tensors(module, which);
    float *all = NULL;
    *count = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const Tensor *tensor = tensors.items[i].tensor;
        if (tensor->dtype != DTYPE_F32) continue;
        size_t more = tensor_count(tensor);
        all = memory_grow(all, *count + more, sizeof *all);
        memcpy(all + *count, grads ? tensor->grad : tensor->data, more * sizeof *all);
        *count += more;
    }
    named_tensors_free(&tensors);
    return all;
}

static void train_on_one_device(Training *t) {
    Error err = {0};
    size_t count;
    Device *device = open_device(0);
    Module *model = norm_model(t->model, device, 40);
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer = optimizer_create(model, &SGD);
    for (int step = 0; step < t->steps; step++) {
        size_t rows = all_rows(&t->shares);
        CHECK_OK(model_backward(model, tape, step, 0, rows, (double)rows, &err) == 0, err);
        t->gradients = (free(t->gradients), floats_of(model, MODULE_PARAMETERS, true, &count));
        optimizer_step(optimizer, 0.05);
    }
    t->state = floats_of(model, MODULE_STATE, false, &count);
    optimizer_close(optimizer);
    tape_close(tape);
    module_close(model);
    device_close(device);
}

static void train_step(const Training *t, Module *wrapper, Tape *tape, Optimizer *optimizer,
                       int step, int rank, Error *err) {
    size_t rows = rows_of(&t->shares, step, rank);
    if (model_backward(wrapper, tape, step, rows_before(&t->shares, step, rank), rows,
                       divisor_of(t, rows), err) == 0 &&
        ddp_finish_backward(wrapper, NULL, err) == 0)
        optimizer_step(optimizer, 0.05);
}

static void check_trained(ProcessGroup *group, const Training *t, Module *model, Outcome *outcome) {
    size_t count;
    float *gradients = floats_of(model, MODULE_PARAMETERS, true, &count);
    compare(outcome, gradients, t->gradients, count, TRAINED, "gradients");
    free(gradients);
    float *state = floats_of(model, MODULE_STATE, false, &count);
    compare(outcome, state, t->state, count, TRAINED, "state");
    float *all = memory_zalloc((size_t)pg_size(group) * count * sizeof *all);
    EXPECT(pg_run(group, pg_all_gather(state, all, count, PG_F32), &outcome->error) == 0);
    for (size_t r = 0; r < (size_t)pg_size(group); r++)
        EXPECT(memcmp(all + r * count, state, count * sizeof *all) == 0);
    free(all);
    free(state);
}

static void train(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Training *t = argument;
    int rank = pg_rank(group);
    Error *err = &outcome->error;
    const DdpConfig config = {.bucket_cap_mb = t->bucket_cap_mb,
                              .overlap = true,
                              .global_normalization = t->scaling == GLOBAL_MEAN};
    Device *device = open_device(rank);
    Module *model = norm_model(t->model, device, 40 + (uint64_t)rank); // replaced by rank 0's
    model->config[0] = (size_t)rank % 2;
    EXPECT(sync_batch_norm_convert(model, group, err) == model);
    Module *wrapper = distributed_data_parallel(model, group, &config, err);
    CHECK(wrapper, "%s", err->message);
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer = optimizer_create(model, &SGD);
    for (int step = 0; step < t->steps && !err->status; step++)
        train_step(t, wrapper, tape, optimizer, step, rank, err);
    if (err->status)
        problem(outcome, "%s", err->message);
    else
        check_trained(group, t, model, outcome);
    optimizer_close(optimizer);
    tape_close(tape);
    module_close(wrapper);
    device_close(device);
}

static void check_training(Training t) {
    if (t.steps == 0) t.steps = STEPS;
    train_on_one_device(&t);
    on_threads_and_processes(train, t.shares.world, &t);
    free(t.state);
    free(t.gradients);
}

static void row_69_training_equals_one_device(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++) {
        check_training((Training){"images", {world, {3, 3, 3, 3}, 0}, LOCAL_MEANS, .steps = 0});
        check_training((Training){"flat", {world, {4, 4, 4, 4}, 0}, GLOBAL_MEAN, .steps = 0});
    }
    check_training((Training){"flat", {4, {1, 1, 1, 1}, 0}, LOCAL_MEANS, .steps = 0});
}

// On odd ranks left and right become ready in the other order: without a group of its own, the
// layer's all-reduce would be matched with a bucket's.
static void row_69_ranks_with_other_ready_orders(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        check_training((Training){"forked", {world, {3, 3, 3, 3}, 0}, LOCAL_MEANS, .steps = 0});
}

static void row_70_running_values_of_100_uneven_batches(void **state) {
    (void)state;
    Training t = {"flat", {3, {2, 5, 3}, 0}, GLOBAL_MEAN, .steps = 100};
    check_training(t);
}

static void row_71_gradients_of_uneven_batches(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++) {
        Shares shares = {world, {2, 3, 4, 5}, 0};
        check_training((Training){"images", shares, SCALED_MEANS, .steps = 0});
        check_training((Training){"flat", shares, GLOBAL_MEAN, .bucket_cap_mb = -1});
    }
}

static void row_72_training_with_empty_batches(void **state) {
    (void)state;
    check_training((Training){"images", {2, {0, 6}, 0}, SCALED_MEANS, .steps = 0});
    check_training((Training){"flat", {4, {3, 0, 4, 0}, 0}, GLOBAL_MEAN, .steps = 0});
}

// ---- in subgroups ---------------------------------------------------------------------------

// Trains two models at the same time, each on half of the ranks with its own batch.
static void train_parts(ProcessGroup *world, const void *argument, Outcome *outcome) {
    const Training *parts = argument;
    int part = pg_rank(world) % 2;
    ProcessGroup *group = pg_split(world, part, &outcome->error);
    if (group)
        train(group, &parts[part], outcome);
    else
        problem(outcome, "%s", outcome->error.message);
    pg_close(group);
}

static void row_73_training_in_two_subgroups(void **state) {
    (void)state;
    Training parts[] = {{"images", {3, {2, 4, 3}, 0}, SCALED_MEANS, .steps = STEPS},
                        {"flat", {2, {5, 3}, 0}, GLOBAL_MEAN, .steps = STEPS + 9}};
    for (int i = 0; i < 2; i++) train_on_one_device(&parts[i]);
    on_threads_and_processes(train_parts, 5, parts);
    for (int i = 0; i < 2; i++) {
        free(parts[i].state);
        free(parts[i].gradients);
    }
}

enum { HALF = 6 }; // rows of two ranks together

// One model on four ranks, with batch norms over two ranks each. Each pair has one device's
// gradient of the pair's rows, and DDP sums the pairs.
static void train_with_halves(ProcessGroup *world, const void *argument, Outcome *outcome) {
    const float *gradients = argument;
    static const size_t rows[] = {2, 4, 5, 1}, first[] = {0, 2, HALF, HALF + 5};
    const DdpConfig config = {.overlap = true, .global_normalization = true};
    int rank = pg_rank(world);
    Error *err = &outcome->error;
    Device *device = open_device(rank);
    Module *model = norm_model("images", device, 40);
    ProcessGroup *half = pg_split(world, rank / 2, err);
    CHECK(half && sync_batch_norm_convert(model, half, err), "%s", err->message);
    pg_close(half);
    Module *wrapper = distributed_data_parallel(model, world, &config, err);
    CHECK(wrapper, "%s", err->message);
    Tape *tape = tape_create(device, NULL);
    if (model_backward(wrapper, tape, 0, first[rank], rows[rank], 2 * HALF, err) == 0)
        ddp_finish_backward(wrapper, NULL, err);
    if (err->status) problem(outcome, "%s", err->message);
    size_t count;
    float *mine = floats_of(model, MODULE_PARAMETERS, true, &count);
    compare(outcome, mine, gradients, count, TRAINED, "gradients");
    free(mine);
    tape_close(tape);
    module_close(wrapper);
    device_close(device);
}

static void row_73_batch_norm_over_halves_of_the_ranks(void **state) {
    (void)state;
    Error err = {0};
    float *halves[2];
    size_t count;
    Device *device = open_device(0);
    Module *model = norm_model("images", device, 40);
    Tape *tape = tape_create(device, NULL);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(model_backward(model, tape, 0, i * HALF, HALF, 2 * HALF, &err) == 0, err);
        halves[i] = floats_of(model, MODULE_PARAMETERS, true, &count);
    }
    for (size_t i = 0; i < count; i++) halves[0][i] += halves[1][i];
    tape_close(tape);
    module_close(model);
    device_close(device);
    on_threads_and_processes(train_with_halves, 4, halves[0]);
    free(halves[0]);
    free(halves[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_69_training_equals_one_device),
        cmocka_unit_test(row_69_ranks_with_other_ready_orders),
        cmocka_unit_test(row_70_running_values_of_100_uneven_batches),
        cmocka_unit_test(row_71_gradients_of_uneven_batches),
        cmocka_unit_test(row_72_training_with_empty_batches),
        cmocka_unit_test(row_73_training_in_two_subgroups),
        cmocka_unit_test(row_73_batch_norm_over_halves_of_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
