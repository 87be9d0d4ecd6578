/* scatter.c: rows of the batch to the devices; in backward, their gradients back.
 *
 * The cut is PyTorch's (tensor.chunk): chunks of ceil(rows / devices) rows. So the last chunk may
 * be short, and there may be fewer chunks than devices: 9 rows on 8 devices are 2, 2, 2, 2, 1.
 * Without rows every device gets an empty piece.
 *
 * The batch that a whole model is wrapped around wants no gradient, and then nothing is recorded.
 * The input of a wrapped part of a model does.
 */
#include "dp/scatter.h"

#include <string.h>

#include "common/data/sampler.h"

// A piece that is already on its device is a view of the batch.
static Tensor *rows_of(const Tensor *x, size_t begin, size_t end, Tape *tape) {
    size_t row_bytes = pieces_row_bytes(x), shape[TENSOR_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = end - begin;
    void *rows = (char *)x->data + begin * row_bytes;
    Tensor *part;
    if (x->device == tape->device) {
        part = tape_alloc(tape, sizeof *part);
        *part = tensor_make(x->device, x->dtype, x->ndim, shape, rows);
    } else {
        part = tape_tensor(tape, x->dtype, x->ndim, shape);
        device_copy(tape->device, part->data, x->device, rows, shape[0] * row_bytes);
    }
    part->requires_grad = x->requires_grad;
    return part;
}

// A replica that did not use its piece has no gradient for it: zeros.
static void scatter_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    Pieces *pieces = node->saved;
    Phase phase = profile_enter(tape->profile, PHASE_SCATTER);
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    for (int i = 0; dx && i < pieces->count; i++) {
        Tensor *part = pieces->items[i].x;
        size_t count = tensor_count(part);
        if (part->has_grad)
            pieces_add_gradient(tape, dx, part, accumulate);
        else if (!accumulate)
            tape->device->kernels->fill(dx, 0.0f, count);
        part->has_grad = false; // delivered
        dx += count;
    }
    tape_grad_done(tape, x);
    profile_leave(tape->profile, phase);
}

Tensor *scatter(Tape *tape, Tensor *x, Pieces *pieces) {
    if (!x) return NULL;
    if (x->ndim == 0) return tape_fail(tape, "scatter", "a scalar has no rows to scatter");
    Phase phase = profile_enter(tape->profile, PHASE_SCATTER);
    size_t rows = x->shape[0], devices = (size_t)pieces->device_count, begin, end;
    for (size_t i = 0; i < devices; i++) {
        chunk_bounds(rows, devices, i, &begin, &end);
        if (begin == end && rows > 0) break; // this device and those after it stay idle
        Piece *piece = &pieces->items[i];
        piece->x = rows_of(x, begin, end, piece->tape);
        pieces->count++;
    }
    Tensor *token = pieces_token(tape);
    tape_record(tape, "scatter", scatter_backward, token, 1, &x, pieces);
    profile_leave(tape->profile, phase);
    return token;
}
