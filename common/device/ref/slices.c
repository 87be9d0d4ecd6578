/* slices.c: the definition of work on lists of pieces of memory. */
#include <math.h>

#include "common/device/ref/kernels.h"
#include "common/device/square_sum.h"

static void ref_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) {
            if (!isfinite(slices[s].data[i])) *not_finite = 1;
            slices[s].data[i] *= factor;
        }
}

static void ref_squares(const Slice *slices, size_t slice_count, bool accumulate, int64_t *sum) {
    if (!accumulate) memset(sum, 0, SQUARES_SIZE * sizeof *sum);
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) square_sum_add_square(sum, slices[s].data[i]);
    square_sum_carry(sum);
}

static void ref_clip(const Slice *slices, size_t slice_count, double max_norm, const int64_t *sum,
                     double *norm) {
    *norm = square_sum_root(sum);
    double factor = max_norm / (*norm + 1e-6);
    for (size_t s = 0; !(factor >= 1) && s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) slices[s].data[i] *= (float)factor;
}

static void ref_pack(float *y, const Slice *slices, size_t slice_count) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) *y++ = slices[s].data[i];
}

static void ref_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) slices[s].data[i] = *x++;
}

const SliceKernels ref_slices = {
    .unscale = ref_unscale,
    .squares = ref_squares,
    .clip = ref_clip,
    .pack = ref_pack,
    .unpack = ref_unpack,
};
