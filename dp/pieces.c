/* pieces.c: making the pieces of a forward, and bringing gradients to the first device. */
#include "dp/pieces.h"
#include "common/nn/tape.h"

#include <string.h>

// Idle devices get a tape, too. Forks are handed out in order, so without that a device's fork
// would depend on the batch's size, and its memory would move to another device after a short one.
Pieces *pieces_create(Tape *tape, const Replica *replicas, int device_count, Tensor **tensors,
                      size_t tensor_count) {
    size_t items_bytes = (size_t)device_count * sizeof(Piece);
    Pieces *pieces = tape_alloc(tape, sizeof *pieces + items_bytes);
    *pieces = (Pieces){.device_count = device_count,
                       .output = tape,
                       .tensors = tensors,
                       .tensor_count = tensor_count};
    memset(pieces->items, 0, items_bytes);
    for (int i = 0; i < device_count; i++) {
        pieces->items[i].replica = &replicas[i];
        pieces->items[i].tape = tape_fork(tape, replicas[i].device);
    }
    return pieces;
}

Tensor *pieces_token(Tape *tape) {
    return tape_tensor(tape, DTYPE_F32, 1, (size_t[]){0});
}

Cut pieces_cut(const Tensor *whole, int dim, size_t begin, size_t end) {
    size_t runs = 1, row = 1; // row: elements from one row to the next
    for (int i = 0; i < dim; i++) runs *= whole->shape[i];
    for (int i = dim + 1; i < whole->ndim; i++) row *= whole->shape[i];
    return (Cut){.runs = runs,
                 .count = (end - begin) * row,
                 .offset = begin * row,
                 .stride = whole->shape[dim] * row};
}

void pieces_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
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
    size_t most = PIECES_STAGING_BYTES / sizeof *sum;
    if (most > left) most = left;
    float *staging = tape_scratch(tape, most * sizeof *staging);
    while (left > 0) {
        size_t part = left < most ? left : most;
        device_copy(tape->device, staging, from, grad, part * sizeof *staging);
        device_kernels(tape->device)->elementwise->accumulate(sum, staging, part);
        sum += part;
        grad += part;
        left -= part;
    }
}
