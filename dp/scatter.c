/* scatter.c: copies the batch's rows to the devices; backward copies their gradients back.
 *
 * Chunks have ceil(rows / devices) rows, as in PyTorch (tensor.chunk): the last chunk may be short,
 * and there may be fewer chunks than devices: 9 rows on 8 devices are 2, 2, 2, 2, 1. An input
 * without rows gives every device an empty shard.
 *
 * Each tensor of a tuple is cut, and every device gets a tuple of its shards; None goes to every
 * device. Tensors with different numbers of rows are an error; PyTorch silently drops the surplus.
 *
 * The input of a wrapped model is a batch of data without gradient: nothing is recorded. The input
 * of a wrapped part of a model requires a gradient.
 */
#include "dp/operations.h"

#include <string.h>

#include "common/base/profile.h"
#include "common/data/sampler.h"
#include "common/nn/ops.h"
#include "common/nn/tuple.h"

// Returns rows [begin, end) of x on the tape's device: a view if x is there and the rows are
// contiguous, else a copy.
static Tensor *rows_of(const Tensor *x, int dim, size_t begin, size_t end, Tape *tape) {
    Cut cut = shards_cut(x, dim, begin, end);
    size_t element = dtype_bytes(x->dtype), shape[TENSOR_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = end - begin;
    char *rows = (char *)x->data + cut.offset * element;
    Tensor *part;
    if (x->device == tape->device && cut.runs == 1) {
        part = tape_alloc(tape, sizeof *part);
        *part = tensor_make(x->device, x->dtype, x->ndim, shape, rows);
    } else {
        part = tape_tensor(tape, x->dtype, x->ndim, shape);
        for (size_t run = 0; run < cut.runs; run++)
            device_copy(tape->device, (char *)part->data + run * cut.count * element, x->device,
                        rows + run * cut.stride * element, cut.count * element);
    }
    part->requires_grad = x->requires_grad && tape->recording;
    return part;
}

// Copies the gradients of input k's shards to x's gradient; zeros for a shard that its replica did
// not use.
static void collect_gradient(Tape *tape, const ReplicaShards *shards, size_t k, Tensor *x) {
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    size_t begin = 0;
    for (int i = 0; dx && i < shards->count; i++) {
        Tensor *part = shards->items[i].inputs[k];
        size_t end = begin + part->shape[shards->dim];
        Cut cut = shards_cut(x, shards->dim, begin, end);
        for (size_t run = 0; run < cut.runs; run++) {
            float *rows = dx + cut.offset + run * cut.stride;
            if (part->has_grad)
                shards_add_gradient(tape, rows, part->device, part->grad + run * cut.count,
                                    cut.count, accumulate);
            else if (!accumulate)
                device_kernels(tape->device)->elementwise->fill(rows, 0.0f, cut.count);
        }
        part->has_grad = false; // delivered
        begin = end;
    }
    tape_grad_done(tape, x);
}

static void scatter_backward(Tape *tape, TapeNode *node) {
    Phase phase = profile_enter(tape->profile, PHASE_SCATTER);
    for (size_t k = 0; k < node->input_count; k++)
        if (node->inputs[k]) collect_gradient(tape, node->saved, k, node->inputs[k]);
    profile_leave(tape->profile, phase);
}

// Checks that all leaves of x can be cut and have the same number of rows. Sets *rows to that
// number if x has a tensor. Returns false with the error on the tape: tape_fail's NULL converts to
// false.
static bool count_rows(Tape *tape, const Tensor *x, int dim, Tensor *const *leaves, size_t count,
                       size_t *rows) {
    const Tensor *first = NULL;
    for (size_t k = 0; k < count; k++) {
        const Tensor *leaf = leaves[k];
        if (!leaf) continue;
        if (leaf->ndim == 0) return tape_fail(tape, "scatter", "a scalar has no rows to scatter");
        if (leaf->ndim <= dim)
            return tape_fail(tape, "scatter", "%s has no dimension %d to cut",
                             tensor_describe(leaf).text, dim);
        if (leaf->requires_grad && leaf->device != tape->device)
            return tape_fail(tape, "scatter", "an input that wants a gradient is on %s",
                             leaf->device->name);
        if (!first) first = leaf;
        *rows = leaf->shape[dim];
        if (*rows != first->shape[dim])
            return tape_fail(tape, "scatter",
                             "the inputs %s have %zu and %zu rows (dimension %d): they must be "
                             "cut alike",
                             tensor_describe(x).text, first->shape[dim], *rows, dim);
    }
    return true;
}

// Returns the checked leaves of x, an array in the tape's arena; NULL with the error on the tape.
static Tensor **leaves_of(Tape *tape, Tensor *x, int dim, size_t *count, size_t *rows) {
    *count = tuple_leaves(x, NULL);
    Tensor **leaves = tape_alloc(tape, *count * sizeof *leaves);
    tuple_leaves(op_float32(tape, x), leaves);
    return count_rows(tape, x, dim, leaves, *count, rows) ? leaves : NULL;
}

Tensor *dp_scatter(Tape *tape, Tensor *x, ReplicaShards *shards) {
    if (!x) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_SCATTER);
    // An input without tensors goes to all devices; a module without inputs runs on the first.
    size_t devices = (size_t)shards->device_count, begin, end, count;
    size_t rows = x->items && x->item_count == 0 ? 1 : devices;
    Tensor **leaves = leaves_of(tape, x, shards->dim, &count, &rows);
    for (size_t i = 0; leaves && i < devices; i++) {
        chunk_bounds(rows, devices, i, &begin, &end);
        if (begin == end && rows > 0) break; // this device and the following are idle
        ReplicaShard *shard = &shards->items[i];
        shard->inputs = tape_alloc(tape, count * sizeof *shard->inputs);
        for (size_t k = 0; k < count; k++)
            shard->inputs[k] =
                leaves[k] ? rows_of(leaves[k], shards->dim, begin, end, shard->tape) : NULL;
        shard->x = tuple_with_leaves(shard->tape, x, shard->inputs);
        shards->count++;
    }
    Tensor *token = leaves ? shards_token(tape) : NULL;
    if (leaves) tape_record_across(tape, "scatter", scatter_backward, token, count, leaves, shards);
    profile_leave(tape->profile, phase);
    return token;
}

Tensor *scatter_to_one(Tape *tape, Tensor *x, int dim) {
    size_t count, rows;
    Tensor **leaves = leaves_of(tape, x, dim, &count, &rows);
    if (!leaves) return NULL;
    bool moved = false;
    for (size_t k = 0; k < count; k++) {
        if (!leaves[k] || leaves[k]->device == tape->device) continue;
        leaves[k] = rows_of(leaves[k], dim, 0, leaves[k]->shape[dim], tape);
        moved = true;
    }
    return moved ? tuple_with_leaves(tape, x, leaves) : x;
}
