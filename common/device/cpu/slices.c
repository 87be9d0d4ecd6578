/* slices.c: the CPU backend's work on lists of pieces of memory. */
#include <math.h>

#include "common/device/cpu/kernels.h"

// Whether all numbers were finite: x - x is 0 for those, NaN for inf and NaN.
VECTORISED static bool scale_checked(float *y, float factor, size_t count) {
    float doubt = 0;
    for (size_t i = 0; i < count; i++) {
        doubt += y[i] - y[i];
        y[i] *= factor;
    }
    return doubt == 0;
}

static void cpu_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        if (!scale_checked(slices[s].data, factor, slices[s].count)) *not_finite = 1;
}

VECTORISED static double sum_squares(const float *x, size_t count) {
    return lanes_reduce(x, x, NULL, count);
}

static void cpu_clip(const Slice *slices, size_t slice_count, double max_norm, float *squares,
                     double *norm) {
    double total = 0;
    for (size_t s = 0; s < slice_count; s++) {
        squares[s] = (float)sum_squares(slices[s].data, slices[s].count);
        total += (double)squares[s];
    }
    *norm = sqrt(total);
    double factor = max_norm / (*norm + 1e-6);
    for (size_t s = 0; !(factor >= 1) && s < slice_count; s++)
        cpu_elementwise.scale(slices[s].data, (float)factor, slices[s].count);
}

static void cpu_pack(float *y, const Slice *slices, size_t slice_count) {
    for (size_t s = 0; s < slice_count; y += slices[s].count, s++)
        if (slices[s].count) memcpy(y, slices[s].data, slices[s].count * sizeof *y);
}

static void cpu_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for (size_t s = 0; s < slice_count; x += slices[s].count, s++)
        if (slices[s].count) memcpy(slices[s].data, x, slices[s].count * sizeof *x);
}

const SliceKernels cpu_slices = {
    .unscale = cpu_unscale,
    .clip = cpu_clip,
    .pack = cpu_pack,
    .unpack = cpu_unpack,
};
