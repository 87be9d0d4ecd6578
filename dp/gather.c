/* gather.c: joins the replicas' outputs on the first device; backward copies each replica's rows of
 * the gradient back to its device.
 *
 * Each tensor of the output has a node of its own, so backward runs for the tensors that the loss
 * depends on only.
 *
 * A module that ends in its own loss returns a scalar. The result then has one element per replica
 * with rows (possibly fewer than devices), and its mean is the mean of the chunks' means: not the
 * batch's mean unless all chunks have the same size. PyTorch returns the vector, too, with a
 * warning.
 */
#include "dp/operations.h"

#include <string.h>

#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "common/nn/tuple.h"

typedef struct GatherSaved {
    ReplicaShards *shards;
    size_t leaf; // index into the output's leaves
} GatherSaved;

static size_t rows_of(const Tensor *y, int dim) {
    return y->ndim == 0 ? 1 : y->shape[dim];
}

// Copies the rows `cut` of y's gradient to the replica's output; adds them if it has a gradient: a
// replica may return one tensor twice.
static void send_gradient_back(ReplicaShard *shard, Tensor *part, const Tensor *y, Cut cut) {
    bool accumulate = part->has_grad;
    float *grad = tape_make_grad(shard->tape, part);
    for (size_t run = 0; run < cut.runs; run++)
        shards_add_gradient(shard->tape, grad + run * cut.count, y->device,
                            y->grad + cut.offset + run * cut.stride, cut.count, accumulate);
}

static void gather_backward(Tape *tape, TapeNode *node) {
    const GatherSaved *saved = node->saved;
    ReplicaShards *shards = saved->shards;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    if (!shards->in_backward) replicate_install(shards); // the first output's backward
    shards->in_backward = true;
    size_t begin = 0;
    for (int i = 0; i < shards->count; i++) {
        Tensor *part = shards->items[i].outputs[saved->leaf];
        size_t end = begin + rows_of(part, shards->dim);
        if (part->requires_grad)
            send_gradient_back(&shards->items[i], part, node->output,
                               shards_cut(node->output, shards->dim, begin, end));
        begin = end;
    }
    bool accumulate;
    tape_grad(tape, node->inputs[0], &accumulate); // a token's gradient has no elements
    tape_grad_done(tape, node->inputs[0]);
    profile_leave(tape->profile, phase);
}

// ---- PyTorch's checks, with its texts (torch/csrc/cuda/comm.cpp) --------------------------------

// Both return false with the error on the tape: tape_fail's NULL converts to false.

static bool check_trees(Tape *tape, const ReplicaShards *shards) {
    const Tensor *first = shards->items[0].y;
    for (int i = 1; i < shards->count; i++)
        if (!tuple_same_tree(shards->items[i].y, first))
            return tape_fail(
                tape, "gather",
                "All replicas must return the same number of tensors, but replica %d returned "
                "%s, replica 0 %s",
                i, tensor_describe(shards->items[i].y).text, tensor_describe(first).text);
    return true;
}

static bool check_shapes(Tape *tape, const ReplicaShards *shards, size_t leaf) {
    const Tensor *first = shards->items[0].outputs[leaf];
    int dim = shards->dim;
    if (first->ndim <= dim && !(first->ndim == 0 && dim == 0))
        return tape_fail(tape, "gather", "an output %s has no dimension %d to join along",
                         tensor_describe(first).text, dim);
    for (int i = 1; i < shards->count; i++) {
        const Tensor *y = shards->items[i].outputs[leaf];
        if (y->ndim != first->ndim)
            return tape_fail(tape, "gather",
                             "Expected all input tensors to have the same number of dimensions, "
                             "but tensor at index %d has %d dimensions, (expected %d)",
                             i, y->ndim, first->ndim);
        Tensor expected = *first;
        if (y->ndim > 0) expected.shape[dim] = y->shape[dim];
        if (!tensor_same_shape(y, &expected))
            return tape_fail(tape, "gather",
                             "Input tensor at index %d has invalid shape %s, but expected %s", i,
                             tensor_describe(y).text, tensor_describe(&expected).text);
        if (y->dtype != first->dtype)
            return tape_fail(tape, "gather",
                             "Input tensor at index %d has dtype %s, but expected %s", i,
                             dtype_name(y->dtype), dtype_name(first->dtype));
    }
    return true;
}

// ---- forward ------------------------------------------------------------------------------------

static Tensor *join_outputs(const ReplicaShards *shards, size_t leaf) {
    const Tensor *first = shards->items[0].outputs[leaf];
    size_t element = dtype_bytes(first->dtype), shape[TENSOR_MAX_DIMS], begin = 0;
    memcpy(shape, first->shape, sizeof shape);
    shape[shards->dim] = 0;
    for (int i = 0; i < shards->count; i++)
        shape[shards->dim] += rows_of(shards->items[i].outputs[leaf], shards->dim);
    Tensor *joined =
        tape_tensor(shards->output, first->dtype, first->ndim == 0 ? 1 : first->ndim, shape);
    for (int i = 0; i < shards->count; i++) {
        const Tensor *y = shards->items[i].outputs[leaf];
        size_t end = begin + rows_of(y, shards->dim);
        Cut cut = shards_cut(joined, shards->dim, begin, end);
        for (size_t run = 0; run < cut.runs; run++)
            device_copy(joined->device,
                        (char *)joined->data + (cut.offset + run * cut.stride) * element, y->device,
                        (char *)y->data + run * cut.count * element, cut.count * element);
        begin = end;
    }
    return joined;
}

// Joins leaf k of the shards' outputs: sets *y, to NULL (None) if all are None. Returns 0, or -1.
static int gather_leaf(Tape *tape, Tensor *outputs, ReplicaShards *shards, size_t k, Tensor **y) {
    *y = NULL;
    if (!shards->items[0].outputs[k]) return 0;
    if (!check_shapes(tape, shards, k)) return -1;
    GatherSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (GatherSaved){.shards = shards, .leaf = k};
    *y = join_outputs(shards, k);
    bool wants_grad = false; // not for an input passed through (labels)
    for (int i = 0; i < shards->count; i++)
        wants_grad = wants_grad || shards->items[i].outputs[k]->requires_grad;
    if (wants_grad) tape_record(tape, "gather", gather_backward, *y, 1, &outputs, saved);
    return 0;
}

Tensor *dp_gather(Tape *tape, Tensor *outputs, ReplicaShards *shards) {
    if (!outputs || !check_trees(tape, shards)) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    size_t count = tuple_leaves(shards->items[0].y, NULL);
    Tensor **leaves = tape_alloc(tape, count * sizeof *leaves);
    for (int i = 0; i < shards->count; i++) {
        ReplicaShard *shard = &shards->items[i];
        shard->outputs = tape_alloc(tape, count * sizeof *shard->outputs);
        tuple_leaves(shard->y, shard->outputs);
    }
    int status = 0;
    for (size_t k = 0; k < count && status == 0; k++)
        status = gather_leaf(tape, outputs, shards, k, &leaves[k]);
    profile_leave(tape->profile, phase);
    return status == 0 ? tuple_with_leaves(tape, shards->items[0].y, leaves) : NULL;
}
