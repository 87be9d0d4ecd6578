/* test_optimizer_hook.c: the optimizer inside the hook equals the whole optimizer bit for bit. On a
 * GPU its scalars are uploaded asynchronously: there is no copy from the host between the kernels
 * of a step. (In a wrapped model: test_semantics_hooks.c.)
 */
#include "tests/rigs/check.h"

#include "common/device/device_backend.h"
#include "common/nn/layers.h"
#include "ddp/features/optimizer_hook.h"

enum { IN = 8, OUT = 4, STEPS = 5 };

// Wraps the device's backend (first field) and counts copies from the host.
typedef struct Counter {
    DeviceBackend backend;
    const DeviceBackend *own;
    int copies;
} Counter;

static void copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    Counter *counter = (Counter *)(to ? to : from)->backend;
    counter->copies += from == NULL;
    counter->own->copy(to, destination, from, source, bytes);
}

static int nothing(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket, (void)err;
    return 0;
}

// A linear layer with ones, and gradients for its parameters.
static Module *make_model(Device *device) {
    Module *model = layer_linear(device, IN, OUT);
    const ElementwiseKernels *kernels = device_kernels(device)->elementwise;
    for (int i = 0; i < model->parameter_count; i++) {
        Tensor *parameter = &model->parameters[i].tensor;
        kernels->fill(parameter->grad, (float)(i + 1), tensor_count(parameter));
        kernels->fill(parameter->data, 1, tensor_count(parameter));
    }
    return model;
}

// Completes one bucket per parameter, from the last to the first, as backward does.
static void finish_buckets(const CommHook *hook, Module *model) {
    const size_t count = (size_t)model->parameter_count;
    for (size_t b = 0; b < count; b++) {
        Tensor *parameter = &model->parameters[count - 1 - b].tensor;
        GradBucket bucket = {.index = b,
                             .is_last = b + 1 == count,
                             .device = parameter->device,
                             .parameters = &parameter,
                             .parameter_count = 1};
        parameter->has_grad = true;
        assert_int_equal(hook->finish(hook->state, &bucket, NULL), 0);
        assert_false(parameter->has_grad);
    }
}

static void train(Device *device, const OptimizerConfig *config, bool inside, float weights[2]) {
    Module *model = make_model(device);
    Optimizer *optimizer = optimizer_create(model, config);
    double lr = 0.5;
    const CommHook inner = {.name = "nothing", .start = nothing, .finish = nothing};
    const CommHook hook = optimizer_hook(inner, optimizer, &lr);
    for (int step = 0; step < STEPS; step++, lr /= 2) {
        for (int i = 0; i < model->parameter_count; i++)
            model->parameters[i].tensor.has_grad = true;
        if (inside) finish_buckets(&hook, model);
        optimizer_step(optimizer, lr); // has no gradients if the hook has run the optimizer
    }
    for (int i = 0; i < 2; i++)
        device_copy(NULL, &weights[i], device, model->parameters[i].tensor.data, sizeof(float));
    hook.close(hook.state);
    optimizer_close(optimizer);
    module_close(model);
}

static void steps_as_the_whole_optimizer(void **state) {
    static const OptimizerConfig kinds[] = {
        {.kind = OPTIMIZER_SGD, .momentum = 0.9},
        {.kind = OPTIMIZER_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}};
    Device *device = *state;
    Counter counter = {.backend = *device->backend, .own = device->backend};
    counter.backend.copy = copy;
    for (int k = 0; k < 2; k++) {
        float whole[2], parts[2];
        train(device, &kinds[k], false, whole);
        device->backend = &counter.backend;
        train(device, &kinds[k], true, parts);
        device->backend = counter.own;
        assert_memory_equal(whole, parts, sizeof whole);
        assert_true(whole[0] < 1 && whole[1] < 1);
        if (!device_is_synchronous(device)) assert_int_equal(counter.copies, 0);
    }
}

int main(int argc, char **argv) {
    Error err = {0};
    Device *device = device_open(argc > 1 ? argv[1] : "cpu:0", &err);
    if (!device) {
        printf("%s\n", err.message);
        return err.status;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(steps_as_the_whole_optimizer, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(device);
    return failed;
}
