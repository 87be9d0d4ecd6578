/* data_parallel_rig.h: a DataParallel on N devices (CPUs by default) and, on a reference device,
 * the same module unwrapped; small modules to wrap; a batch and a loss that are equal on both
 * sides.
 */
#ifndef TESTS_RIGS_DATA_PARALLEL_RIG_H
#define TESTS_RIGS_DATA_PARALLEL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "dp/data_parallel.h"
#include "tests/rigs/serial_shards.h"

enum { SEED = 7, INPUTS = 6, CLASSES = 3, LARGEST_BATCH = 17, IMAGE = 8, CHANNELS = 2, TEXT = 3 };

static inline Module *build_mlp(Device *device) {
    Module *model = layer_sequential("MLP");
    module_add(model, "fc1", layer_linear(device, INPUTS, 8));
    module_add(model, "relu", layer_relu());
    module_add(model, "fc2", layer_linear(device, 8, CLASSES));
    module_initialize(model, SEED);
    return model;
}

static inline Module *build_convnet(Device *device) {
    const ModelConfig config = {
        .name = "convnet", .input = {CHANNELS, IMAGE, IMAGE}, .outputs = CLASSES, .seed = SEED};
    Error err = {0};
    Module *model = model_create(&config, device, &err);
    CHECK(model, "%s", err.message);
    return model;
}

static inline Module *build_gpt(Device *device) { // inputs are texts of TEXT tokens
    const ModelConfig config = {
        .name = "gpt", .outputs = CLASSES, .seed = SEED, .gpt = {2, 2, 8, TEXT}};
    Error err = {0};
    Module *model = model_create(&config, device, &err);
    CHECK(model, "%s", err.message);
    return model;
}

static inline Module *build_square(Device *device) { // output and input have one shape
    Module *model = layer_sequential("Square");
    module_add(model, "fc", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "bn", layer_batch_norm(device, INPUTS));
    module_initialize(model, SEED);
    return model;
}

// A module whose output is its integer buffer, one row per replica.
static const int64_t ODD_BITS = 0x7fa0000180000001; // as floats: a signalling NaN, a denormal

static inline Tensor *tell_buffer(Module *self, Tape *tape, Tensor *x) {
    (void)x;
    Tensor *told = tape_tensor(tape, DTYPE_I64, 1, (size_t[]){1});
    device_copy(tape->device, told->data, tape->device, self->buffers[0].tensor.data,
                sizeof(int64_t));
    return told;
}

static inline Module *build_integer(Device *device) {
    Module *module = module_create("Integer", tell_buffer);
    Tensor *buffer = module_add_buffer(module, device, "count", DTYPE_I64, 0, NULL);
    device_copy(device, buffer->data, NULL, &ODD_BITS, sizeof ODD_BITS);
    return module;
}

typedef struct Rig {
    BuildModule build;
    int count;
    Device *devices[SHARDS_MAX], *reference;
    Module *model, *wrapper; // on devices[0]
    Module *twin;            // the unwrapped module with the same weights, on the reference device
    Tape *tape, *reference_tape;
} Rig;

static inline Device *rig_device(const char *kind, int index) {
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "%s:%d", kind, index);
    Device *device = device_open(name, &err);
    if (!device) fail_msg("%s", err.message);
    return device;
}

static inline Rig rig_open_on(BuildModule build, int count, const char *kind, const int *ids,
                              int reference) {
    Rig rig = {.build = build, .count = count};
    Error err = {0};
    for (int i = 0; i < count; i++) rig.devices[i] = rig_device(kind, ids[i]);
    rig.reference = rig_device(kind, reference);
    rig.model = build(rig.devices[0]);
    rig.twin = build(rig.reference);
    rig.wrapper = data_parallel(rig.model, rig.devices, count, &err);
    if (!rig.wrapper) fail_msg("%s", err.message);
    rig.tape = tape_create(rig.devices[0], NULL);
    rig.reference_tape = tape_create(rig.reference, NULL);
    return rig;
}

static inline Rig rig_open(BuildModule build, int count) {
    return rig_open_on(build, count, "cpu", (int[SHARDS_MAX]){0, 1, 2, 3, 4, 5, 6, 7}, 99);
}

static inline void rig_close(Rig *rig) {
    tape_close(rig->tape);
    tape_close(rig->reference_tape);
    module_close(rig->wrapper);
    module_close(rig->twin);
    for (int i = 0; i < rig->count; i++) device_close(rig->devices[i]);
    device_close(rig->reference);
}

// Random numbers; equal salts give equal numbers.
static inline Tensor *rig_tensor(Tape *tape, int ndim, const size_t *shape, uint64_t salt) {
    Tensor host = tensor_make(NULL, DTYPE_F32, ndim, shape, NULL);
    float *values = memory_zalloc(tensor_bytes(&host));
    for (size_t i = 0; i < tensor_count(&host); i++)
        values[i] = rng_uniform(SEED + salt, RNG_STREAM_TEST, i, -1, 1);
    Tensor *x = tape_input(tape, DTYPE_F32, ndim, shape, values);
    free(values);
    return x;
}

// The same batch on either side's tape.
static inline Tensor *rig_batch(const Rig *rig, Tape *tape, size_t rows) {
    bool images = rig->build == build_convnet;
    if (rig->build == build_gpt) {
        int64_t tokens[LARGEST_BATCH * TEXT];
        for (size_t i = 0; i < rows * TEXT; i++) tokens[i] = (int64_t)(i * i / 2 % CLASSES);
        return tape_input(tape, DTYPE_I64, 2, (size_t[]){rows, TEXT}, tokens);
    }
    size_t shape[] = {rows, images ? CHANNELS : INPUTS, IMAGE, IMAGE};
    return rig_tensor(tape, images ? 4 : 2, shape, 0);
}

static inline Tensor *rig_loss(Tape *tape, Tensor *y) {
    if (y && y->ndim == 2) {
        int64_t labels[LARGEST_BATCH * TEXT];
        CHECK(y->shape[0] <= LARGEST_BATCH * TEXT, "%zu rows", y->shape[0]);
        for (size_t i = 0; i < y->shape[0]; i++) labels[i] = (int64_t)(i * i + 1) % CLASSES;
        Tensor *target = tape_input(tape, DTYPE_I64, 1, y->shape, labels);
        return op_cross_entropy(tape, y, target, (double)y->shape[0]);
    }
    if (!y) return NULL;
    Tensor *zeros = tape_tensor(tape, DTYPE_F32, y->ndim, y->shape);
    device_kernels(tape->device)->elementwise->fill(zeros->data, 0, tensor_count(zeros));
    return op_squared_error(tape, y, zeros, (double)tensor_count(y));
}

static inline void rig_backward(Tape *tape, Tensor *loss) {
    Error err = {0};
    if (!loss || tape_backward(tape, loss, &err) != 0)
        fail_msg("%s %s", tape->error.message, err.message);
}

static inline Tensor *rig_numbers(Tape *tape, size_t rows, size_t columns, uint64_t salt) {
    return rig_tensor(tape, 2, (size_t[]){rows, columns}, salt);
}

// Compares with PyTorch's default tolerance for float32. NaN never passes.
static inline void assert_near(const char *what, const float *have, const float *want,
                               size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(have[i] - want[i]) <= 1e-5f + 1.3e-6f * fabsf(want[i])))
            fail_msg("%s: element %zu is %g, expected %g", what, i, (double)have[i],
                     (double)want[i]);
}

static inline void assert_near_tensor(const char *what, const Tensor *have, const Tensor *want) {
    assert_true(tensor_same_shape(have, want));
    assert_near(what, have->data, want->data, tensor_count(want));
}

// Compares all gradients of the wrapped module and the twin. Returns the number of defined
// gradients.
static inline int assert_near_gradients(const Rig *rig) {
    NamedTensors a = module_tensors(rig->wrapper, MODULE_PARAMETERS);
    NamedTensors b = module_tensors(rig->twin, MODULE_PARAMETERS);
    int with_gradient = 0;
    for (size_t k = 0; k < a.count; k++) {
        const Tensor *have = a.items[k].tensor, *want = b.items[k].tensor;
        assert_int_equal(have->has_grad, want->has_grad);
        if (!have->has_grad) continue;
        size_t count = tensor_count(want);
        assert_near(a.items[k].name, have->grad, want->grad, count);
        float largest = 0;
        for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(want->grad[i]));
        if (!(largest > 1e-3f)) fail_msg("the gradient of %s is nearly zero", a.items[k].name);
        with_gradient++;
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
    return with_gradient;
}

static inline void assert_error(const Tape *tape, const char *text) {
    Error err = {0};
    assert_int_equal(tape_error(tape, &err), -1);
    assert_string_equal(err.message, text);
}

#endif
