/* cuda_fp16.h of the CUDA emulator: IEEE half precision (1 sign, 5 exponent, 10 fraction bits) and
 * its conversions. Calculations are done in float, so there are no operators. C++ only, as the real
 * one.
 */
#ifndef CUDA_EMULATOR_FP16_H
#define CUDA_EMULATOR_FP16_H

#ifdef __cplusplus
#include <cuda_runtime.h>

struct alignas(2) __half {
    unsigned short bits;
};
typedef __half half;

inline unsigned short __half_as_ushort(__half x) {
    return x.bits;
}
inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}

// To the nearest, ties to even; 65520 and more become infinity. Any NaN becomes CUDA's.
inline __half __float2half_rn(float x) {
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    unsigned result;
    if (bits > 0x7f800000) return {0x7fff};
    if (bits >= 0x477ff000) // 65520, half way between the largest half and the next power of two
        result = 0x7c00;
    else if (bits >= 0x38800000) // 2^-14, the smallest normal half
        // The exponent's bias is 127 in a float and 15 here; rounding as in cuda_bf16.h.
        result = (bits - ((127 - 15) << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    else // subnormal, a multiple of 2^-24: adding 0.5 aligns the fraction and rounds
        result = __float_as_uint(__uint_as_float(bits) + 0.5f) - 0x3f000000;
    return {static_cast<unsigned short>(sign | result)};
}
inline __half __float2half(float x) {
    return __float2half_rn(x);
}
inline float __half2float(__half x) {
    unsigned sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
    if (rest >= 0x7c00) // infinity, NaN
        return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return __uint_as_float(sign | ((rest << 13) + ((127 - 15) << 23)));
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(rest) * 0x1p-24f));
}
#endif

#endif
