/* half_types.h: the 16-bit types that a device computes in: fp16 always, bfloat16 on GPUs from
 * compute capability 8.0 on (a T4 has 7.5).
 */
#ifndef TESTS_RIGS_HALF_TYPES_H
#define TESTS_RIGS_HALF_TYPES_H

#include <stdbool.h>

#include "common/device/device.h"

// Returns bfloat16, or fp16 if the device lacks bfloat16: the start of a loop up to PRECISION_F16.
static inline Precision first_half(const Device *device) {
    return device->capability == 0 || device->capability >= 80 ? PRECISION_BF16 : PRECISION_F16;
}

// Returns whether the device computes in this precision. A T4 lacks bfloat16.
static inline bool computes_in(const Device *device, Precision precision) {
    return precision != PRECISION_BF16 || first_half(device) == PRECISION_BF16;
}

// Returns fp16 if `wants_f16`, otherwise first_half.
static inline Precision half_type(const Device *device, bool wants_f16) {
    return wants_f16 ? PRECISION_F16 : first_half(device);
}

#endif
