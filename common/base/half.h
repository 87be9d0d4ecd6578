/* half.h: the two 16-bit floats, in plain C, for mixed precision and compressed gradients.
 *
 *   fp16 (IEEE binary16): 5 bits of exponent, 10 of mantissa: 3 digits, at most 65504
 *   bf16:                 the upper half of a float: 8 bits of exponent, 7 of mantissa: 2 digits
 *
 * Rounding is to nearest, ties to even, as in hardware; overflow gives infinity, and NaN stays NaN.
 * They are storage formats: arithmetic is in float, with one rounding after each operation.
 */
#ifndef COMMON_BASE_HALF_H
#define COMMON_BASE_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_value(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// a where the condition holds, otherwise b: without a branch, so that loops can be vectorised.
static inline uint32_t half_either(bool condition, uint32_t a, uint32_t b) {
    uint32_t mask = 0u - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

// Below 2^-14 the spacing of fp16 is that of floats around 0.5: adding 0.5 rounds to it. Above, the
// exponent is rebiased (127 to 15) and the 13 lowest bits of the mantissa are rounded away; a carry
// increments the exponent.
static inline uint16_t half_to_f16(float value) {
    uint32_t bits = half_bits(value), sign = bits & 0x80000000u, size = bits ^ sign;
    uint32_t small = half_bits(half_value(size) + 0.5f) - 0x3f000000u;
    uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13;
    uint32_t finite = half_either(size < 0x38800000u, small, normal);
    uint32_t other = half_either(size > 0x7f800000u, 0x7e00, 0x7c00); // NaN; infinite
    return (uint16_t)(sign >> 16 | half_either(size >= 0x47800000u, other, finite)); // 65536
}

// The exponent is rebiased (15 to 127). A subnormal gets the exponent of 2^-14, and 2^-14 is then
// subtracted. (Multiplying subnormal floats is slow.)
static inline float half_from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = (uint32_t)(half & 0x7fff) << 13;
    uint32_t small = half_bits(half_value(size + 0x38800000u) - 0x1p-14f);
    uint32_t finite = half_either(size < 0x400u << 13, small, size + 0x38000000u);
    uint32_t other = 0x7f800000u | (size & 0x7fffffu); // infinite, or a NaN
    return half_value(sign | half_either(size >= 0x7c00u << 13, other, finite));
}

static inline uint16_t half_to_bf16(float value) {
    uint32_t bits = half_bits(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)half_either(is_nan, bits >> 16 | 0x40, rounded);
}

static inline float half_from_bf16(uint16_t half) {
    return half_value((uint32_t)half << 16);
}

#endif
