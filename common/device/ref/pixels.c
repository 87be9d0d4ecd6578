/* pixels.c: the reference for dense prediction: upsampling, and the losses and classes
 * of single pixels. Formulas and argument shapes are in kernels.h.
 */
#include "common/device/ref/kernels.h"

#include <math.h>
#include <string.h>

// ---- upsampling ------------------------------------------------------------------------------

static void ref_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w) {
    for (size_t row = 0; row < planes * 2 * h; row++)
        for (size_t column = 0; column < 2 * w; column++)
            y[row * 2 * w + column] = x[row / 2 * w + column / 2];
}

static void ref_upsample2x_gradient(const float *dy, float *dx, bool accumulate, size_t planes,
                                    size_t h, size_t w) {
    for (size_t row = 0; row < planes * h; row++)
        for (size_t column = 0; column < w; column++) {
            double sum = 0;
            for (size_t i = 0; i < 4; i++)
                sum += (double)dy[(2 * row + i / 2) * 2 * w + 2 * column + i % 2];
            ref_put(&dx[row * w + column], sum, accumulate);
        }
}

// ---- losses ----------------------------------------------------------------------------------

static void ref_pixel_cross_entropy(PixelLabels labels, const float *logits, float *probabilities,
                                    float *losses) {
    for (size_t i = 0; i < labels.n * labels.inner; i++) {
        size_t first = i / labels.inner * labels.classes * labels.inner + i % labels.inner;
        double loss = ref_softmax(logits + first, probabilities + first, labels.classes,
                                  labels.inner, labels.target[i]);
        losses[i] = labels.target[i] < 0 ? 0 : (float)loss;
    }
}

// How many pixels that count come before pixel i when the hardest is first.
static size_t place(const float *losses, const int64_t *target, size_t i, size_t count) {
    size_t before = 0;
    for (size_t j = 0; j < count; j++) {
        bool equal = !ref_beats(losses[i], losses[j]) && !ref_beats(losses[j], losses[i]);
        if (target[j] >= 0 && (ref_beats(losses[j], losses[i]) || (equal && j < i))) before++;
    }
    return before;
}

static void ref_hard_pixels(const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum) {
    size_t above = 0;
    double total = 0;
    *kept_count = 0;
    for (size_t i = 0; i < of->count; i++)
        above += of->target[i] >= 0 && ref_beats(of->losses[i], of->threshold);
    for (size_t i = 0; i < of->count; i++) {
        if (of->target[i] < 0)
            kept[i] = 0;
        else if (above < of->least)
            kept[i] = place(of->losses, of->target, i, of->count) < of->least;
        else
            kept[i] = ref_beats(of->losses[i], of->threshold);
        *kept_count += kept[i];
        if (kept[i]) total += (double)of->losses[i];
    }
    *sum = (float)total;
}

static void ref_pixel_cross_entropy_gradient(PixelLabels labels, const float *probabilities,
                                             const uint8_t *kept, const float *upstream,
                                             float *dlogits, bool accumulate) {
    for (size_t index = 0; index < labels.n * labels.classes * labels.inner; index++) {
        size_t plane = index / labels.inner, k = plane % labels.classes;
        size_t pixel = plane / labels.classes * labels.inner + index % labels.inner;
        double onehot = labels.target[pixel] == (int64_t)k ? 1 : 0;
        double gradient = ((double)probabilities[index] - onehot) * (double)*upstream;
        ref_put(&dlogits[index], kept[pixel] ? gradient : 0, accumulate);
    }
}

static void ref_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                               size_t inner) {
    for (size_t i = 0; i < n * inner; i++)
        predicted[i] =
            (int32_t)ref_argmax(logits + i / inner * classes * inner + i % inner, classes, inner);
}

static void ref_count_pixels(PixelLabels labels, const int32_t *predicted, int64_t *confusion) {
    size_t columns = labels.classes + 1;
    memset(confusion, 0, labels.classes * columns * sizeof *confusion);
    for (size_t i = 0; i < labels.n * labels.inner; i++) {
        if (labels.target[i] < 0 || (size_t)labels.target[i] >= labels.classes) continue;
        size_t column = predicted[i] < 0 ? labels.classes : (size_t)predicted[i];
        confusion[(size_t)labels.target[i] * columns + column]++;
    }
}

const PixelKernels ref_pixels = {
    .upsample2x = ref_upsample2x,
    .upsample2x_gradient = ref_upsample2x_gradient,
    .pixel_cross_entropy = ref_pixel_cross_entropy,
    .hard_pixels = ref_hard_pixels,
    .pixel_cross_entropy_gradient = ref_pixel_cross_entropy_gradient,
    .predict_pixels = ref_predict_pixels,
    .count_pixels = ref_count_pixels,
};
