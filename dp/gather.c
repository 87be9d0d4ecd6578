/* gather.c: the replicas' outputs to the first device; in backward, each one's rows of the gradient
 * back to it.
 *
 * Every tensor of the output is joined by a node of its own, so that backward reaches those alone
 * that the loss depends on.
 *
 * A module that ends in its own loss returns a scalar; then the result has one element per replica
 * that ran, which is not always one per device, and its mean is the mean of the chunks' means: not
 * the mean of the batch unless all chunks are equally long. PyTorch warns of this when it
 * happens.
 */
#include "dp/gather.h"

#include <string.h>

#include "common/nn/tape.h"
#include "common/nn/tuple.h"
#include "dp/replicate.h"

typedef struct GatherSaved {
    Pieces *pieces;
    size_t leaf; // of the output
} GatherSaved;

static size_t rows_of(const Tensor *y, int dim) {
    return y->ndim == 0 ? 1 : y->shape[dim];
}

// A replica may have returned one tensor twice; then the second gradient adds to the first.
static void send_gradient_back(Piece *piece, Tensor *part, const Tensor *y, Cut cut) {
    bool accumulate = part->has_grad;
    float *grad = tape_make_grad(piece->tape, part);
    for (size_t run = 0; run < cut.runs; run++)
        pieces_add_gradient(piece->tape, grad + run * cut.count, y->device,
                            y->grad + cut.offset + run * cut.stride, cut.count, accumulate);
}

static void gather_backward(Tape *tape, Node *node) {
    const GatherSaved *saved = node->saved;
    Pieces *pieces = saved->pieces;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    if (!pieces->in_backward) replicate_install(pieces); // the first of the outputs to come back
    pieces->in_backward = true;
    size_t begin = 0;
    for (int i = 0; i < pieces->count; i++) {
        Tensor *part = pieces->items[i].outputs[saved->leaf];
        size_t end = begin + rows_of(part, pieces->dim);
        if (part->requires_grad)
            send_gradient_back(&pieces->items[i], part, node->output,
                               pieces_cut(node->output, pieces->dim, begin, end));
        begin = end;
    }
    bool accumulate;
    tape_grad(tape, node->inputs[0], &accumulate); // it is a token's: there is nothing to write
    tape_grad_done(tape, node->inputs[0]);
    profile_leave(tape->profile, phase);
}

static int check_trees(Tape *tape, const Pieces *pieces) {
    const Tensor *first = pieces->items[0].y;
    for (int i = 1; i < pieces->count; i++) {
        if (tuple_same_tree(pieces->items[i].y, first)) continue;
        char got[256], want[256];
        tape_fail(tape, "gather",
                  "All replicas must return the same number of tensors, but replica %d returned "
                  "%s, replica 0 %s",
                  i, tensor_describe(pieces->items[i].y, got, sizeof got),
                  tensor_describe(first, want, sizeof want));
        return -1;
    }
    return 0;
}

// PyTorch's checks, with its texts (torch/csrc/cuda/comm.cpp). Returns 0, or -1.
static int check_shapes(Tape *tape, const Pieces *pieces, size_t leaf) {
    const Tensor *first = pieces->items[0].outputs[leaf];
    char got[64], want[64];
    int dim = pieces->dim;
    if (first->ndim <= dim && !(first->ndim == 0 && dim == 0)) {
        tape_fail(tape, "gather", "an output %s has no dimension %d to join along",
                  tensor_describe(first, got, sizeof got), dim);
        return -1;
    }
    for (int i = 1; i < pieces->count; i++) {
        const Tensor *y = pieces->items[i].outputs[leaf];
        if (y->ndim != first->ndim) {
            tape_fail(tape, "gather",
                      "Expected all input tensors to have the same number of dimensions, but "
                      "tensor at index %d has %d dimensions, (expected %d)",
                      i, y->ndim, first->ndim);
            return -1;
        }
        Tensor expected = *first;
        if (y->ndim > 0) expected.shape[dim] = y->shape[dim];
        if (!tensor_same_shape(y, &expected)) {
            tape_fail(
                tape, "gather", "Input tensor at index %d has invalid shape %s, but expected %s", i,
                tensor_describe(y, got, sizeof got), tensor_describe(&expected, want, sizeof want));
            return -1;
        }
        if (y->dtype != first->dtype) {
            tape_fail(tape, "gather", "Input tensor at index %d has dtype %s, but expected %s", i,
                      dtype_name(y->dtype), dtype_name(first->dtype));
            return -1;
        }
    }
    return 0;
}

static Tensor *join_outputs(const Pieces *pieces, size_t leaf) {
    const Tensor *first = pieces->items[0].outputs[leaf];
    size_t element = dtype_bytes(first->dtype), shape[TENSOR_MAX_DIMS], begin = 0;
    memcpy(shape, first->shape, sizeof shape);
    shape[pieces->dim] = 0;
    for (int i = 0; i < pieces->count; i++)
        shape[pieces->dim] += rows_of(pieces->items[i].outputs[leaf], pieces->dim);
    Tensor *joined =
        tape_tensor(pieces->output, first->dtype, first->ndim == 0 ? 1 : first->ndim, shape);
    for (int i = 0; i < pieces->count; i++) {
        const Tensor *y = pieces->items[i].outputs[leaf];
        size_t end = begin + rows_of(y, pieces->dim);
        Cut cut = pieces_cut(joined, pieces->dim, begin, end);
        for (size_t run = 0; run < cut.runs; run++)
            device_copy(joined->device,
                        (char *)joined->data + (cut.offset + run * cut.stride) * element, y->device,
                        (char *)y->data + run * cut.count * element, cut.count * element);
        begin = end;
    }
    return joined;
}

// Joins the pieces' outputs number k: sets *y, to NULL (None) if all are None. Returns 0, or -1.
static int gather_leaf(Tape *tape, Tensor *outputs, Pieces *pieces, size_t k, Tensor **y) {
    *y = NULL;
    if (!pieces->items[0].outputs[k]) return 0;
    if (check_shapes(tape, pieces, k) != 0) return -1;
    GatherSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (GatherSaved){.pieces = pieces, .leaf = k};
    *y = join_outputs(pieces, k);
    bool wants_grad = false; // an output that is only passed through (labels) does not
    for (int i = 0; i < pieces->count; i++)
        wants_grad = wants_grad || pieces->items[i].outputs[k]->requires_grad;
    if (wants_grad) tape_record(tape, "gather", gather_backward, *y, 1, &outputs, saved);
    return 0;
}

Tensor *dp_gather(Tape *tape, Tensor *outputs, Pieces *pieces) {
    if (!outputs || check_trees(tape, pieces) != 0) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    size_t count = tuple_leaves(pieces->items[0].y, NULL);
    Tensor **leaves = tape_alloc(tape, count * sizeof *leaves);
    for (int i = 0; i < pieces->count; i++) {
        Piece *piece = &pieces->items[i];
        piece->outputs = tape_alloc(tape, count * sizeof *piece->outputs);
        tuple_leaves(piece->y, piece->outputs);
    }
    int status = 0;
    for (size_t k = 0; k < count && status == 0; k++)
        status = gather_leaf(tape, outputs, pieces, k, &leaves[k]);
    profile_leave(tape->profile, phase);
    return status == 0 ? tuple_with_leaves(tape, pieces->items[0].y, leaves) : NULL;
}
