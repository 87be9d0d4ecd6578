/* kernels.c: the reference backend: the definition of every operation, in plain C.
 *
 * This is the backend to read, and the oracle of the tests: each kernel is its
 * formula with loops around it, sums are in double, and nothing here is shared with another
 * backend but rounding to 16 bits (kernels_host.h). It makes no attempt to be fast.
 */
#include <stdio.h>

#include "common/device/ref/kernels.h"

#include "common/device/device_backend.h"

static void ref_describe(char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "plain C reference kernels");
}

static int ref_prepare(Error *err) {
    (void)err;
    return 0;
}

const Kernels kernels_ref = {
    .name = "ref",
    .is_cpu = true,
    .is_synchronous = true,
    .is_addressable = true,
    .describe = ref_describe,
    .prepare = ref_prepare,
    .elementwise = &ref_elementwise,
    .slices = &ref_slices,
    .matrix = &ref_matrix,
    .convolution = &ref_convolution,
    .norm = &ref_norm,
    .loss = &ref_loss,
    .pixels = &ref_pixels,
    .transformer = &ref_transformer,
    .halves = &ref_halves,
    .optimizer = &ref_optimizer,
};
