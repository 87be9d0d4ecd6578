/* gather.c: the replicas' outputs to the first device; in backward, each one's rows of the gradient
 * back to it.
 *
 * A module that ends in its own loss returns a scalar; then the result has one element per replica
 * that ran, which is not always one per device, and its mean is the mean of the chunks' means: not
 * the mean of the batch unless all chunks are equally long. PyTorch warns of this; here it is said
 * once.
 */
#include "dp/gather.h"

#include <string.h>

static size_t bytes_of(const Tensor *y) {
    return tensor_count(y) * sizeof(float);
}

static void gather_backward(Tape *tape, Node *node) {
    Pieces *pieces = node->saved;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    const float *dy = node->output->grad;
    for (int i = 0; i < pieces->count; i++) {
        Piece *piece = &pieces->items[i];
        if (piece->y->requires_grad)
            device_copy(piece->tape->device, tape_make_grad(piece->tape, piece->y), tape->device,
                        dy, bytes_of(piece->y));
        dy += tensor_count(piece->y);
    }
    bool accumulate;
    tape_grad(tape, node->inputs[0], &accumulate); // a token's: nothing to write
    tape_grad_done(tape, node->inputs[0]);
    profile_leave(tape->profile, phase);
}

// PyTorch's two checks, with its texts (torch/csrc/cuda/comm.cpp). Returns 0, or -1.
static int check_shapes(Tape *tape, const Pieces *pieces) {
    const Tensor *first = pieces->items[0].y;
    for (int i = 1; i < pieces->count; i++) {
        const Tensor *y = pieces->items[i].y;
        if (y->ndim != first->ndim) {
            tape_fail(tape, "gather",
                      "Expected all input tensors to have the same number of dimensions, but "
                      "tensor at index %d has %d dimensions, (expected %d)",
                      i, y->ndim, first->ndim);
            return -1;
        }
        Tensor expected = *first;
        if (y->ndim > 0) expected.shape[0] = y->shape[0];
        char got[64], want[64];
        if (!tensor_same_shape(y, &expected)) {
            tape_fail(
                tape, "gather", "Input tensor at index %d has invalid shape %s, but expected %s", i,
                tensor_describe(y, got, sizeof got), tensor_describe(&expected, want, sizeof want));
            return -1;
        }
    }
    return 0;
}

static Tensor *join(Tape *tape, const Pieces *pieces) {
    const Tensor *first = pieces->items[0].y;
    size_t shape[TENSOR_MAX_DIMS];
    memcpy(shape, first->shape, sizeof shape);
    shape[0] = 0;
    for (int i = 0; i < pieces->count; i++)
        shape[0] += first->ndim == 0 ? 1 : pieces->items[i].y->shape[0];
    Tensor *joined = tape_tensor(tape, first->dtype, first->ndim == 0 ? 1 : first->ndim, shape);
    char *to = joined->data;
    for (int i = 0; i < pieces->count; i++) {
        const Tensor *y = pieces->items[i].y;
        device_copy(tape->device, to, y->device, y->data, tensor_bytes(y));
        to += tensor_bytes(y);
    }
    return joined;
}

Tensor *gather(Tape *tape, Tensor *outputs, Pieces *pieces) {
    if (!outputs || check_shapes(tape, pieces) != 0) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_GATHER);
    Tensor *y = join(tape, pieces);
    tape_record(tape, "gather", gather_backward, y, 1, &outputs, pieces);
    profile_leave(tape->profile, phase);
    return y;
}
