/* ops_pixel_loss.c: cross-entropy over pixels that are not ignored, and, with hard-example mining
 * (Shrivastava, Gupta, Girshick: "Training region-based object detectors with online hard example
 * mining", CVPR 2016) only over those of large loss.
 */
#include <math.h>

#include "common/nn/ops.h"

#define KERNELS(tape) device_kernels((tape)->device)

typedef struct PixelLossSaved {
    const Tensor *target;
    float *probabilities; // [n, classes, h, w], device memory, as is all that follows
    uint8_t *kept;        // [n, h, w]
} PixelLossSaved;

static void pixel_cross_entropy_backward(Tape *tape, TapeNode *node) {
    Tensor *logits = node->inputs[0], *sum = node->output;
    const PixelLossSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, logits, &accumulate);
    KERNELS(tape)->pixels->pixel_cross_entropy_gradient(
        (PixelLabels){saved->target->data, logits->shape[0], logits->shape[1],
                      logits->shape[2] * logits->shape[3]},
        saved->probabilities, saved->kept, sum->grad, grad, accumulate);
    tape_grad_done(tape, logits);
}

Tensor *op_pixel_cross_entropy(Tape *tape, Tensor *logits, Tensor *target, const Mining *mining,
                               size_t *kept) {
    *kept = 0;
    if (!logits || !target || !tape_check_devices(tape, "pixel_cross_entropy", &target, 1))
        return NULL;
    logits = op_float32(tape, logits);
    if (logits->ndim != 4 || target->ndim != 3 || target->dtype != DTYPE_I64 ||
        target->shape[0] != logits->shape[0] || target->shape[1] != logits->shape[2] ||
        target->shape[2] != logits->shape[3])
        return tape_fail(tape, "pixel_cross_entropy", "logits %s do not fit targets %s",
                         tensor_describe(logits).text, tensor_describe(target).text);
    size_t n = logits->shape[0], classes = logits->shape[1],
           inner = logits->shape[2] * logits->shape[3];
    size_t bad = tensor_find_outside(target, INT64_MIN, (int64_t)classes); // below 0: ignored
    if (bad < n * inner)
        return tape_fail(tape, "pixel_cross_entropy",
                         "target %lld of pixel %zu of image %zu is out of range [0, %zu)",
                         (long long)((const int64_t *)target->data)[bad], bad % inner, bad / inner,
                         classes);
    PixelLossSaved *saved = tape_alloc(tape, sizeof *saved);
    saved->target = target;
    saved->probabilities = tape_memory(tape, n * classes * inner * sizeof(float));
    saved->kept = tape_memory(tape, n * inner);
    float *losses = tape_scratch(tape, n * inner * sizeof *losses);
    KERNELS(tape)->pixels->pixel_cross_entropy((PixelLabels){target->data, n, classes, inner},
                                               tensor_f32(logits), saved->probabilities, losses);
    Tensor *loss = tape_tensor(tape, DTYPE_F32, 0, NULL);
    int64_t *on_device = tape_memory(tape, sizeof *on_device), count;
    KERNELS(tape)->pixels->hard_pixels(
        &(HardPixels){.losses = losses,
                      .target = target->data,
                      .count = n * inner,
                      .threshold = mining ? (float)mining->threshold : -INFINITY,
                      .least = mining ? mining->least : 0},
        saved->kept, on_device, tensor_f32(loss));
    device_copy(NULL, &count, tape->device, on_device, sizeof count); // the divisor is made of it
    *kept = (size_t)count;
    tape_record(tape, "pixel_cross_entropy", pixel_cross_entropy_backward, loss, 1, &logits, saved);
    return loss;
}
