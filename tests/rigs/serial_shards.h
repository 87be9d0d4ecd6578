/* serial_shards.h: the reference for data parallelism: the replicas' work in sequence on plain
 * tapes, independent of the code of dp/ and ddp/.
 *
 * shards_forward splits the rows into chunks, runs a fresh copy of the module on each, and
 * concatenates the outputs; shards_backward runs the tapes backward and adds the gradients in shard
 * order. Everything is on one device, of any kind.
 */
#ifndef TESTS_RIGS_SERIAL_SHARDS_H
#define TESTS_RIGS_SERIAL_SHARDS_H

#include <string.h>

#include "common/data/sampler.h"
#include "common/nn/module.h"
#include "common/nn/ops.h"

enum { SHARDS_MAX = 8 };

typedef Module *(*BuildModule)(Device *device); // each call gives the same weights

typedef struct Shards {
    Module *modules[SHARDS_MAX];
    Tape *tapes[SHARDS_MAX];
    Tensor *x[SHARDS_MAX], *y[SHARDS_MAX];
    int count;
} Shards;

static inline void shards_copy_state(Module *to, Module *from) {
    NamedTensors a = module_tensors(to, MODULE_STATE), b = module_tensors(from, MODULE_STATE);
    for (size_t k = 0; k < a.count; k++) {
        Tensor *copy = a.items[k].tensor, *original = b.items[k].tensor;
        device_copy(copy->device, copy->data, original->device, original->data, tensor_bytes(copy));
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
}

// Returns the concatenated outputs: a leaf of `tape` that requires a gradient.
static inline Tensor *shards_join(const Shards *shards, Tape *tape) {
    size_t shape[TENSOR_MAX_DIMS];
    const Tensor *first = shards->y[0];
    memcpy(shape, first->shape, sizeof shape);
    shape[0] = 0;
    for (int i = 0; i < shards->count; i++) shape[0] += first->ndim ? shards->y[i]->shape[0] : 1;
    Tensor *joined = tape_tensor(tape, first->dtype, first->ndim ? first->ndim : 1, shape);
    char *to = joined->data;
    for (int i = 0; i < shards->count; i++) {
        const Tensor *y = shards->y[i];
        device_copy(tape->device, to, tape->device, y->data, tensor_bytes(y));
        to += tensor_bytes(y);
    }
    joined->requires_grad = true;
    return joined;
}

// Runs copies of `master` on the chunks of x. Buffers of shard 0 are copied to `master`.
static inline Tensor *shards_forward(Shards *shards, BuildModule build, Module *master, int devices,
                                     const Tensor *x, bool x_grad, Tape *tape) {
    *shards = (Shards){0};
    for (int i = 0; i < devices; i++) {
        size_t begin, end, shape[TENSOR_MAX_DIMS];
        chunk_bounds(x->shape[0], (size_t)devices, (size_t)i, &begin, &end);
        if (begin == end) break;
        memcpy(shape, x->shape, sizeof shape);
        shape[0] = end - begin;
        shards->count++;
        shards->modules[i] = build(tape->device);
        shards_copy_state(shards->modules[i], master);
        Tape *own = shards->tapes[i] = tape_create(tape->device, NULL);
        own->recording = tape->recording;
        own->training = tape->training;
        own->precision = tape->precision;
        size_t row_bytes = tensor_bytes(x) / x->shape[0];
        shards->x[i] = tape_tensor(own, x->dtype, x->ndim, shape);
        device_copy(tape->device, shards->x[i]->data, tape->device,
                    (char *)x->data + begin * row_bytes, (end - begin) * row_bytes);
        shards->x[i]->requires_grad = x_grad;
        shards->y[i] = op_float32(own, module_forward(shards->modules[i], own, shards->x[i]));
        CHECK(shards->y[i], "shard %d: %s", i, own->error.message);
    }
    shards_copy_state(master, shards->modules[0]);
    return shards_join(shards, tape);
}

// y = x, or y += x
static inline void shards_add(Device *device, float *y, const float *x, size_t count, bool first) {
    if (first)
        device_copy(device, y, device, x, count * sizeof *y);
    else
        device_kernels(device)->elementwise->accumulate(y, x, count);
}

// Adds the shards' defined gradients to master's in shard order: ((g0 + g1) + g2) + ...
static inline void shards_reduce(const Shards *shards, Module *master) {
    NamedTensors to = module_tensors(master, MODULE_PARAMETERS);
    for (size_t k = 0; k < to.count; k++) {
        Tensor *parameter = to.items[k].tensor;
        size_t count = tensor_count(parameter);
        Device *device = parameter->device;
        float *sum = device_alloc(device, count * sizeof *sum);
        bool any = false;
        for (int i = 0; i < shards->count; i++) {
            NamedTensors from = module_tensors(shards->modules[i], MODULE_PARAMETERS);
            const Tensor *shard = from.items[k].tensor;
            if (shard->has_grad) shards_add(device, sum, shard->grad, count, !any);
            any = any || shard->has_grad;
            named_tensors_free(&from);
        }
        if (any) shards_add(device, parameter->grad, sum, count, !parameter->has_grad);
        parameter->has_grad = parameter->has_grad || any;
        device_free(device, sum, count * sizeof *sum);
    }
    named_tensors_free(&to);
}

// dy: gradient of the concatenated outputs. dx: receives the gradient of x, or NULL. Device memory.
static inline void shards_backward(Shards *shards, Module *master, const float *dy, float *dx) {
    Error err = {0};
    for (int i = 0; i < shards->count; i++) {
        Tensor *x = shards->x[i], *y = shards->y[i];
        float *own = tape_make_grad(shards->tapes[i], y);
        device_copy(y->device, own, y->device, dy, tensor_count(y) * sizeof *dy);
        dy += tensor_count(y);
        CHECK(tape_backward(shards->tapes[i], y, &err) == 0, "shard %d: %s", i, err.message);
        if (!dx) continue;
        device_copy(x->device, dx, x->device, x->grad, tensor_count(x) * sizeof *dx);
        dx += tensor_count(x);
    }
    shards_reduce(shards, master);
}

static inline void shards_close(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        tape_close(shards->tapes[i]);
        module_close(shards->modules[i]);
    }
    shards->count = 0;
}

#endif
