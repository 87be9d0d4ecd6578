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

void shards_accumulate(Tape *tape, const DeviceTerm *terms, size_t count) {
    size_t most = 0;
    for (size_t t = 0; t < count; t++)
        if (terms[t].from != tape->device && terms[t].count > most) most = terms[t].count;
    if (most > SHARDS_STAGING_BYTES / sizeof(float)) most = SHARDS_STAGING_BYTES / sizeof(float);
    float *staging = most > 0 ? tape_scratch(tape, most * sizeof *staging) : NULL;
    device_accumulate(tape->device, terms, count, staging, most);
}

void shards_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
                         bool accumulate) {
    if (accumulate)
        shards_accumulate(tape, &(DeviceTerm){sum, from, grad, count}, 1);
    else
        device_copy(tape->device, sum, from, grad, count * sizeof *sum);
}
