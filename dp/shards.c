/* shards.c: allocates a forward's shards; accumulates gradients on the first device. */
#include "dp/shards.h"
#include "common/nn/tape.h"

#include <string.h>

// Idle devices get a tape, too: forks are assigned in order, so otherwise a device's fork, and with
// it the fork's memory, would depend on the batch's size.
ReplicaShards *shards_create(Tape *tape, const Replica *replicas, int device_count,
                             Tensor **tensors, size_t tensor_count) {
    size_t items_bytes = (size_t)device_count * sizeof(ReplicaShard);
    ReplicaShards *shards = tape_alloc(tape, sizeof *shards + items_bytes);
    *shards = (ReplicaShards){.device_count = device_count,
                              .output = tape,
                              .tensors = tensors,
                              .tensor_count = tensor_count};
    memset(shards->items, 0, items_bytes);
    for (int i = 0; i < device_count; i++) {
        shards->items[i].replica = &replicas[i];
        shards->items[i].tape = tape_fork(tape, replicas[i].device);
    }
    return shards;
}

Tensor *shards_token(Tape *tape) {
    return tape_tensor(tape, DTYPE_F32, 1, (size_t[]){0});
}

Cut shards_cut(const Tensor *whole, int dim, size_t begin, size_t end) {
    size_t runs = 1, row = 1; // row: elements from one row to the next
    for (int i = 0; i < dim; i++) runs *= whole->shape[i];
    for (int i = dim + 1; i < whole->ndim; i++) row *= whole->shape[i];
    return (Cut){.runs = runs,
                 .count = (end - begin) * row,
                 .offset = begin * row,
                 .stride = whole->shape[dim] * row};
}

void shards_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
                         bool accumulate) {
    size_t left = count;
    if (!accumulate) {
        device_copy(tape->device, sum, from, grad, left * sizeof *sum);
        return;
    }
    if (from == tape->device) {
        device_kernels(tape->device)->elementwise->accumulate(sum, grad, left);
        return;
    }
    size_t most = SHARDS_STAGING_BYTES / sizeof *sum;
    if (most > left) most = left;
    float *staging = tape_scratch(tape, most * sizeof *staging);
    while (left > 0) {
        size_t now = left < most ? left : most;
        device_copy(tape->device, staging, from, grad, now * sizeof *staging);
        device_kernels(tape->device)->elementwise->accumulate(sum, staging, now);
        sum += now;
        grad += now;
        left -= now;
    }
}
