/* data_parallel_steps.h: runs steps of a DataParallel and of the sequential shards side by side, on
 * devices of any kind: outputs, losses, gradients, weights and buffers must have equal bits.
 */
#ifndef TESTS_RIGS_DATA_PARALLEL_STEPS_H
#define TESTS_RIGS_DATA_PARALLEL_STEPS_H

#include "tests/rigs/data_parallel_rig.h"

static inline void rig_reset(Rig *rig) {
    tape_reset(rig->tape);
    tape_reset(rig->reference_tape);
}

// Returns a host copy of device memory, to be freed.
static inline void *host_copy(Device *device, const void *data, size_t bytes) {
    void *copy = memory_zalloc(bytes);
    device_copy(NULL, copy, device, data, bytes);
    return copy;
}

static inline bool all_zero(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0) return false;
    return true;
}

static inline void assert_same_values(const char *what, const Tensor *a, const Tensor *b) {
    assert_true(tensor_same_shape(a, b));
    void *have = host_copy(a->device, a->data, tensor_bytes(a));
    void *want = host_copy(b->device, b->data, tensor_bytes(b));
    if (memcmp(have, want, tensor_bytes(a)) != 0) fail_msg("%s differs", what);
    free(have);
    free(want);
}

// Asserts equal bits, not all zero.
static inline void assert_same_gradient(const char *name, const Tensor *a, const Tensor *b) {
    assert_int_equal(a->has_grad, b->has_grad);
    if (!a->has_grad) return;
    float *have = host_copy(a->device, a->grad, tensor_bytes(a));
    float *want = host_copy(b->device, b->grad, tensor_bytes(b));
    if (memcmp(have, want, tensor_bytes(a)) != 0) fail_msg("the gradient of %s differs", name);
    if (all_zero(have, tensor_count(a))) fail_msg("the gradient of %s is zero", name);
    free(have);
    free(want);
}

// Asserts equal weights, buffers and gradients of the wrapped module and the twin.
static inline void assert_same_module(const Rig *rig) {
    NamedTensors a = module_tensors(rig->wrapper, MODULE_STATE);
    NamedTensors b = module_tensors(rig->twin, MODULE_STATE);
    assert_int_equal(a.count, b.count);
    for (size_t k = 0; k < a.count; k++) {
        assert_string_equal(a.items[k].name, b.items[k].name); // the wrapper adds no prefix
        assert_same_values(a.items[k].name, a.items[k].tensor, b.items[k].tensor);
        assert_same_gradient(a.items[k].name, a.items[k].tensor, b.items[k].tensor);
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
}

// Runs one step on both sides and compares all results.
static inline void compare_step(Rig *rig, size_t rows) {
    rig_reset(rig);
    Tensor *y = module_forward(rig->wrapper, rig->tape, rig_batch(rig, rig->tape, rows));
    Tensor *loss = rig_loss(rig->tape, y);
    rig_backward(rig->tape, loss);

    Tape *tape = rig->reference_tape;
    Shards shards;
    Tensor *want = shards_forward(&shards, rig->build, rig->twin, rig->count,
                                  rig_batch(rig, tape, rows), false, tape);
    Tensor *want_loss = rig_loss(tape, want);
    rig_backward(tape, want_loss);
    shards_backward(&shards, rig->twin, want->grad, NULL);
    shards_close(&shards);

    assert_same_values("the output", y, want);
    assert_same_values("the loss", loss, want_loss);
    assert_same_module(rig);
}

#endif
