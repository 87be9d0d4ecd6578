/* cuda_bf16.h of the CUDA emulator: bfloat16, which is the upper half of a float, and its
 * conversions. Calculations are done in float, so there are no operators. C++ only, as the real
 * one.
 */
#ifndef CUDA_EMULATOR_BF16_H
#define CUDA_EMULATOR_BF16_H

#ifdef __cplusplus
#include <cuda_runtime.h>

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;
};
typedef __nv_bfloat16 nv_bfloat16;

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
    return x.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return {bits};
}

// To the nearest, ties to even. Any NaN becomes CUDA's.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
    // Adding just less than half, or half where the kept part is odd, carries exactly when
    // rounding up. The largest floats become infinity in the same way.
    return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float x) {
    return __float2bfloat16_rn(x);
}
inline float __bfloat162float(__nv_bfloat16 x) {
    return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
#endif

#endif
