/* slices.c: the definition of work on lists of pieces of memory. */
#include <math.h>

#include "common/device/ref/kernels.h"

static void ref_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) {
            if (!isfinite(slices[s].data[i])) *not_finite = 1;
            slices[s].data[i] *= factor;
        }
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
    .pack = ref_pack,
    .unpack = ref_unpack,
};
