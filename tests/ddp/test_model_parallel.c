/* test_model_parallel.c: a model on several devices, alone and wrapped in DistributedDataParallel
 * (row 58): its losses and gradients equal those of one device bit for bit; there is one set of
 * buckets per device; data crosses devices only by copies.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/base/format.h"
#include "common/base/rng.h"
#include "common/nn/on_device.h"
#include "ddp/features/logging_data.h"
#include "ddp/reducer.h"

enum { IN = 10, OUT = 5, ROWS = 4, PARTS = 3, STEPS = 4, SEED = 11 };

// net1, then net2 and net3, each on its own device. tie: net2 runs twice, the second time as a
// residual branch.
static Tensor *parts_forward(Module *self, Tape *tape, Tensor *x) {
    x = op_relu(tape, module_forward(module_child(self, "net1"), tape, x));
    x = op_relu(tape, module_forward(module_child(self, "net2"), tape, x));
    if (self->config[0]) x = op_add(tape, x, module_forward(module_child(self, "net2"), tape, x));
    return module_forward(module_child(self, "net3"), tape, x);
}

static Module *build(Device *const devices[PARTS], bool tie, uint64_t seed) {
    Module *model = module_create("ToyMp", parts_forward);
    Module *parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = layer_linear(devices[i], IN, i == 2 ? OUT : IN);
    for (int i = 0; i < PARTS; i++) {
        char name[MODULE_NAME];
        snprintf(name, sizeof name, "net%d", i + 1);
        bool away = devices[i] != devices[0];
        module_add(model, name, away ? layer_on_device(parts[i]) : parts[i]);
    }
    model->config[0] = tie;
    module_initialize(model, seed);
    return model;
}

static int train_step(Rig *rig, Module *module, int step, Error *err) {
    float x[ROWS * IN], target[ROWS * OUT];
    uint64_t batch = (uint64_t)(step * 8 + rig->rank) * ROWS * IN;
    for (size_t i = 0; i < ROWS * IN; i++) x[i] = rng_uniform(1, RNG_STREAM_TEST, batch + i, -1, 1);
    for (size_t i = 0; i < ROWS * OUT; i++)
        target[i] = rng_uniform(2, RNG_STREAM_TEST, batch + i, -1, 1);
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    Tensor *y = module_forward(module, rig->tape,
                               tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){ROWS, IN}, x));
    Tensor *t = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){ROWS, OUT}, target);
    Tensor *loss = op_squared_error(rig->tape, y, t, ROWS * OUT);
    if (tape_error(rig->tape, err) != 0 || tape_backward(rig->tape, loss, err) != 0) return -1;
    return rig->wrapper ? ddp_finish_backward(rig->wrapper, NULL, err) : 0;
}

// Elements of all weights; copy_out writes weights, then gradients, [2 * WEIGHTS].
enum { WEIGHTS = 2 * (IN * IN + IN) + IN * OUT + OUT };

static void copy_out(Rig *rig, float *out) {
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        memcpy(out, tensor->data, tensor_bytes(tensor));
        memcpy(out + WEIGHTS, tensor->grad, tensor_bytes(tensor));
        EXPECT(tensor->has_grad);
        out += tensor_count(tensor);
    }
    named_tensors_free(&parameters);
}

typedef struct Case {
    double cap;
    bool tie, wrapped, find_unused, static_graph;
} Case;

// Trains on `count` devices.
static void train(ProcessGroup *group, Outcome *outcome, const Case *how, int count, float *out) {
    Rig self = rig_open(group, outcome), *rig = &self;
    Device *devices[PARTS] = {rig->device, rig->device, rig->device};
    char names[64], name[24];
    snprintf(names, sizeof names, "%s", rig->device->name);
    for (int i = 1; i < count; i++) { // the second device's name is a prefix of the third's
        snprintf(name, sizeof name, i == 1 ? "cpu:%d0" : "cpu:%d", 10 + rig->rank);
        devices[i] = device_open(name, NULL);
        format_append(names, sizeof names, " %s", name);
    }
    RigConfig config = {.ddp = ddp_config_default(),
                        .find_unused_parameters = how->find_unused,
                        .static_graph = how->static_graph};
    config.ddp.bucket_cap_mb = how->cap;
    // Initial weights differ between ranks; the wrapper broadcasts rank 0's.
    rig->model = build(devices, how->tie, SEED + (uint64_t)rig->rank);
    if (how->wrapped) rig_wrap_with(rig, rig->model, &config);
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.9};
    Optimizer *optimizer = optimizer_create(rig->model, &sgd);
    for (int step = 0; step < STEPS; step++) {
        Error err = {0};
        if (train_step(rig, rig->wrapper ? rig->wrapper : rig->model, step, &err) != 0)
            problem(outcome, "%s", err.message);
        optimizer_step(optimizer, 0.1);
        if (how->wrapped && step == 0 && !how->find_unused)
            EXPECT(ddp_reducer(rig->wrapper)->slab.plan.bucket_count == (size_t)count);
    }
    if (how->wrapped) {
        const DdpLoggingData data = ddp_logging_data(rig->wrapper);
        EXPECT(data.is_multi_device_module == (count > 1) && strcmp(data.device_ids, names) == 0);
    }
    for (int i = 1; i < count; i++) EXPECT(devices[i]->copied_bytes > 0);
    copy_out(rig, out);
    optimizer_close(optimizer);
    rig_close(rig);
    for (int i = 1; i < count; i++) device_close(devices[i]); // reports leaked memory
}

static void compare_devices(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    float one[2 * WEIGHTS], several[2 * WEIGHTS];
    train(group, outcome, how, 1, one);
    for (int count = 2; count <= PARTS; count++) {
        train(group, outcome, how, count, several);
        if (memcmp(one, several, sizeof one) != 0)
            problem(outcome, "%d devices differ from one", count);
    }
    float most = 0;
    for (int i = WEIGHTS; i < 2 * WEIGHTS; i++) most = fmaxf(most, fabsf(one[i]));
    if (!(most > 1e-3f)) problem(outcome, "gradients are at most %g", (double)most);
}

static void model_on_several_devices(void **state) {
    (void)state;
    for (int tie = 0; tie <= 1; tie++) {
        const Case how = {.tie = tie};
        play_ranks(AS_THREADS, 1, 60, compare_devices, &how, NULL);
    }
}

static void row_58_multi_device_module(void **state) {
    (void)state;
    for (double cap = -1; cap <= 0; cap++)
        for (int tie = 0; tie <= 1; tie++)
            for (int policy = 0; policy < 3; policy++) {
                const Case how = {cap, tie, true, policy == 1, policy == 2};
                for (int world = 1; world <= 3; world++)
                    play_both(world, compare_devices, &how, NULL);
            }
}

// ---- a part whose backward fails --------------------------------------------------------------

static void fail_backward(Tape *tape, TapeNode *node) {
    (void)node;
    tape_fail(tape, "fragile", "out of luck");
}

// A relu; with config[0] an operation follows whose backward fails.
static Tensor *fragile_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = op_relu(tape, module_forward(self->children[0], tape, x));
    if (!self->config[0]) return y;
    Tensor *z = tape_view(tape, DTYPE_F32, y->ndim, y->shape, y->data);
    tape_record(tape, "fragile", fail_backward, z, 1, &y, NULL);
    return z;
}

// After the failure, each parameter of the part on the other device becomes ready once per
// backward.
static void fail_elsewhere(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", 10 * rig->rank + 11);
    Device *other = device_open(name, NULL);
    Module *fragile = module_create("Fragile", fragile_forward);
    module_add(fragile, "fc", layer_linear(other, IN, OUT));
    Module *model = layer_sequential("Two");
    module_add(model, "a", layer_linear(rig->device, IN, IN));
    module_add(model, "b", layer_on_device(fragile));
    module_initialize(model, SEED);
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, model, &config);
    for (int step = 0; step < 4; step++) {
        Error err = {0};
        fragile->config[0] = step == 1;
        bool fails = train_step(rig, rig->wrapper, step, &err) != 0;
        EXPECT(fails == (step == 1)); // no gradient was ready: the wrapper remains usable
        if (fails) EXPECT(strstr(err.message, "out of luck"));
    }
    tape_close(rig->tape);
    module_close(rig->wrapper);
    rig->tape = NULL;
    rig->wrapper = rig->model = NULL;
    device_close(other);
    rig_close(rig);
}

static void row_58_a_part_that_fails(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 60, fail_elsewhere, NULL, NULL);
}

// ---- a part that does not use its input -------------------------------------------------------

static Tensor *constant_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *ones = tape_tensor(tape, DTYPE_F32, 2, x->shape);
    for (size_t i = 0; i < tensor_count(ones); i++) tensor_f32(ones)[i] = 1;
    return module_forward(self->children[0], tape, ones);
}

static int count_ready(void *context, Tensor *tensor, Error *err) {
    (void)tensor, (void)err;
    ++*(int *)context;
    return 0;
}

// The part contributes a zero gradient to its input, whether the input has no other use, one before
// it or one after it. Its unused parameter never becomes ready.
static void a_part_that_ignores_its_input(void **state) {
    (void)state;
    Device *devices[] = {device_open("cpu:0", NULL), device_open("cpu:1", NULL)};
    Tape *tape = tape_create(devices[0], NULL);
    Module *constant = module_create("Constant", constant_forward);
    int ready[2] = {0};
    const char *names[] = {"fc", "spare"};
    for (int k = 0; k < 2; k++) {
        Module *linear = module_add(constant, names[k], layer_linear(devices[1], IN, IN));
        module_parameter(linear, 0)->on_ready = count_ready;
        module_parameter(linear, 0)->on_ready_context = &ready[k];
    }
    module_initialize(constant, SEED);
    Module *part = layer_on_device(constant);
    for (int way = 0; way < 3; way++) {
        Error err = {0};
        tape_reset(tape);
        Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){ROWS, IN});
        float *dx = tape_memory(tape, tensor_bytes(x));
        for (size_t i = 0; i < ROWS * IN; i++) dx[i] = tensor_f32(x)[i] = 5;
        x->requires_grad = true;
        x->grad = dx;
        Tensor *y = way == 1 ? op_add(tape, x, x) : NULL;
        Tensor *z = module_forward(part, tape, x);
        if (way == 1) z = op_add(tape, y, z);
        if (way == 2) z = op_add(tape, z, op_add(tape, x, x));
        float *dz = tape_make_grad(tape, z);
        for (size_t i = 0; i < ROWS * IN; i++) dz[i] = 3;
        CHECK_OK(tape_backward(tape, z, &err) == 0, err);
        assert_true(x->has_grad && all_equal(x->grad, ROWS * IN, way ? 6 : 0));
        assert_true(ready[0] == way + 1 && ready[1] == 0);
        assert_false(module_parameter(constant->children[1], 0)->has_grad);
    }
    tape_close(tape);
    module_close(part);
    for (int i = 0; i < 2; i++) device_close(devices[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_on_several_devices),
        cmocka_unit_test(row_58_multi_device_module),
        cmocka_unit_test(row_58_a_part_that_fails),
        cmocka_unit_test(a_part_that_ignores_its_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
