/* pixels.c: the CPU backend's kernels for dense prediction.
 *
 * Logits are [n, classes, inner]: the classes of one pixel lie far apart, those of neighbouring
 * pixels side by side. So the loops run over classes outside and pixels inside, along memory, and
 * are vectorised over pixels. Blocks of pixels keep a pass's planes in the cache.
 */
#include <math.h>

#include "common/device/cpu/exponential.h"
#include "common/device/cpu/kernels.h"

// ---- upsampling ------------------------------------------------------------------------------

VECTORISED static void cpu_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w) {
    for (size_t row = 0; row < planes * h; row++) {
        const float *from = x + row * w;
        float *to = y + row * 4 * w;
        for (size_t column = 0; column < w; column++)
            to[2 * column] = to[2 * column + 1] = from[column];
        memcpy(to + 2 * w, to, 2 * w * sizeof *to);
    }
}

VECTORISED static void cpu_upsample2x_gradient(const float *dy, float *dx, bool accumulate,
                                               size_t planes, size_t h, size_t w) {
    for (size_t row = 0; row < planes * h; row++) {
        const float *upper = dy + row * 4 * w, *lower = upper + 2 * w;
        float *to = dx + row * w;
        INDEPENDENT
        for (size_t column = 0; column < w; column++) {
            float sum = (upper[2 * column] + upper[2 * column + 1]) +
                        (lower[2 * column] + lower[2 * column + 1]);
            to[column] = accumulate ? to[column] + sum : sum;
        }
    }
}

// ---- losses ----------------------------------------------------------------------------------

enum { BLOCK = 256 }; // pixels

// The softmax of `count` neighbouring pixels, and the terms of a pixel's loss:
// log(totals) + maxima - logit.
VECTORISED static void softmax_block(const float *x, float *p, float *maxima, float *totals,
                                     size_t count, size_t classes, size_t inner) {
    for (size_t j = 0; j < count; j++) maxima[j] = x[j];
    for (size_t k = 1; k < classes; k++)
        for (size_t j = 0; j < count; j++) {
            float value = x[k * inner + j];
            maxima[j] = value > maxima[j] ? value : maxima[j];
        }
    for (size_t j = 0; j < count; j++) totals[j] = 0;
    for (size_t k = 0; k < classes; k++) {
        for (size_t j = 0; j < count; j++)
            p[k * inner + j] = exponential(x[k * inner + j] - maxima[j]);
        for (size_t j = 0; j < count; j++) totals[j] += p[k * inner + j];
    }
    for (size_t k = 0; k < classes; k++)
        for (size_t j = 0; j < count; j++) p[k * inner + j] /= totals[j];
}

static void cpu_pixel_cross_entropy(PixelLabels labels, const float *logits, float *probabilities,
                                    float *losses) {
    float maxima[BLOCK], totals[BLOCK];
    for (size_t i = 0; i < labels.n; i++)
        for (size_t first = 0; first < labels.inner; first += BLOCK) {
            size_t count = labels.inner - first < BLOCK ? labels.inner - first : BLOCK;
            const float *x = logits + i * labels.classes * labels.inner + first;
            const int64_t *label = labels.target + i * labels.inner + first;
            float *loss = losses + i * labels.inner + first;
            softmax_block(x, probabilities + (x - logits), maxima, totals, count, labels.classes,
                          labels.inner);
            for (size_t j = 0; j < count; j++)
                if (label[j] < 0)
                    loss[j] = 0;
                else if ((uint64_t)label[j] >= labels.classes)
                    loss[j] = NAN;
                else
                    loss[j] =
                        logf(totals[j]) + (maxima[j] - x[(size_t)label[j] * labels.inner + j]);
        }
}

// Returns a number by which losses can be compared: floats that are not negative have the order of
// their bits. NaN gets the largest.
static inline uint32_t order_of(float loss) {
    const uint32_t top = 0x7fc00000;
    uint32_t bits;
    memcpy(&bits, &loss, sizeof bits);
    return loss == loss ? bits : top;
}

VECTORISED static size_t count_from(const float *losses, const int64_t *target, uint32_t cut,
                                    size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += (order_of(losses[i]) >= cut) & (target[i] >= 0);
    return found;
}

// The `least`-th largest loss, or 0 if there are fewer: found by counting, one bit at a time from
// the top. It takes 32 passes for any losses, allocates nothing and keeps the order.
static uint32_t find_cut(const float *losses, const int64_t *target, size_t least, size_t count) {
    uint32_t cut = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t larger = cut | (uint32_t)1 << bit;
        if (count_from(losses, target, larger, count) >= least) cut = larger;
    }
    return cut;
}

static void cpu_hard_pixels(const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum) {
    size_t keep = 0;
    for (size_t i = 0; i < of->count; i++) { // "not below or at": true for NaN
        kept[i] = of->target[i] >= 0 && !(of->losses[i] <= of->threshold);
        keep += kept[i];
    }
    if (keep < of->least) {
        uint32_t cut = find_cut(of->losses, of->target, of->least, of->count);
        size_t above = count_from(of->losses, of->target, cut + 1, of->count),
               equal = of->least - above;
        keep = 0;
        for (size_t i = 0; i < of->count; i++) {
            bool at_cut = of->target[i] >= 0 && order_of(of->losses[i]) == cut && equal > 0;
            kept[i] = at_cut || (of->target[i] >= 0 && order_of(of->losses[i]) > cut);
            equal -= at_cut;
            keep += kept[i];
        }
    }
    double total = 0;
    for (size_t i = 0; i < of->count; i++) total += kept[i] ? (double)of->losses[i] : 0;
    *sum = (float)total;
    *kept_count = (int64_t)keep;
}

// Target class and mask of neighbouring pixels of an image, in 32 bits each, so that their vectors
// are as long as those of floats.
typedef struct PixelBlock {
    size_t first, count;
    int32_t class[BLOCK], kept[BLOCK]; // kept: all bits set, or none
} PixelBlock;

VECTORISED static void block_gradient(const PixelBlock *block, const float *p, float scale,
                                      int32_t class, float *dlogits, bool accumulate) {
    INDEPENDENT
    for (size_t j = 0; j < block->count; j++) {
        float gradient = (p[j] - (block->class[j] == class ? 1.0f : 0.0f)) * scale;
        gradient = exponential_from(exponential_bits(gradient) & block->kept[j]);
        float before = dlogits[j]; // read in any case: a load under a condition is not vectorised
        dlogits[j] = accumulate ? before + gradient : gradient;
    }
}

static void cpu_pixel_cross_entropy_gradient(PixelLabels labels, const float *probabilities,
                                             const uint8_t *kept, const float *upstream,
                                             float *dlogits, bool accumulate) {
    const size_t inner = labels.inner;
    PixelBlock block;
    for (size_t i = 0; i < labels.n; i++)
        for (block.first = 0; block.first < inner; block.first += BLOCK) {
            const size_t at = i * inner + block.first, left = inner - block.first;
            block.count = left < BLOCK ? left : BLOCK;
            for (size_t j = 0; j < block.count; j++) {
                const int64_t label = labels.target[at + j];
                block.class[j] = label >= 0 && label < INT32_MAX ? (int32_t)label : -1;
                block.kept[j] = -(int32_t)kept[at + j];
            }
            for (size_t k = 0; k < labels.classes; k++) {
                const size_t plane = (i * labels.classes + k) * inner + block.first;
                block_gradient(&block, probabilities + plane, *upstream, (int32_t)k,
                               dlogits + plane, accumulate);
            }
        }
}

VECTORISED static void predict_image(const float *x, int32_t *predicted, float *best, size_t count,
                                     size_t classes, size_t inner) {
    for (size_t j = 0; j < count; j++) {
        best[j] = x[j];
        predicted[j] = x[j] == x[j] ? 0 : -1;
    }
    for (size_t k = 1; k < classes; k++)
        for (size_t j = 0; j < count; j++) {
            float value = x[k * inner + j];
            int32_t now = value > best[j] ? (int32_t)k : predicted[j];
            predicted[j] = value == value && predicted[j] >= 0 ? now : -1;
            best[j] = value > best[j] ? value : best[j];
        }
}

static void cpu_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                               size_t inner) {
    float best[BLOCK];
    for (size_t i = 0; i < n; i++)
        for (size_t first = 0; first < inner; first += BLOCK)
            predict_image(logits + i * classes * inner + first, predicted + i * inner + first, best,
                          inner - first < BLOCK ? inner - first : BLOCK, classes, inner);
}

static void cpu_count_pixels(PixelLabels labels, const int32_t *predicted, int64_t *confusion) {
    size_t columns = labels.classes + 1;
    memset(confusion, 0, labels.classes * columns * sizeof *confusion);
    for (size_t i = 0; i < labels.n * labels.inner; i++) {
        if (labels.target[i] < 0 || (size_t)labels.target[i] >= labels.classes) continue;
        size_t column = predicted[i] < 0 ? labels.classes : (size_t)predicted[i];
        confusion[(size_t)labels.target[i] * columns + column]++;
    }
}

const PixelKernels cpu_pixels = {
    .upsample2x = cpu_upsample2x,
    .upsample2x_gradient = cpu_upsample2x_gradient,
    .pixel_cross_entropy = cpu_pixel_cross_entropy,
    .hard_pixels = cpu_hard_pixels,
    .pixel_cross_entropy_gradient = cpu_pixel_cross_entropy_gradient,
    .predict_pixels = cpu_predict_pixels,
    .count_pixels = cpu_count_pixels,
};
