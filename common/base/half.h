/* half.h: the two 16-bit floats, in plain C. Products may round to them, and gradients may travel
 * as them.
 *
 *   fp16 (IEEE binary16): 5 bits of exponent, 10 of mantissa: 3 digits, at most 65504
 *   bf16:                 the upper half of a float: 8 bits of exponent, 7 of mantissa: 2 digits
 *
 * Rounding is to the nearest, ties to even, as in hardware; what is too large becomes infinite, and
 * a NaN stays one. Numbers in 16 bits are stored, not computed with: arithmetic is on floats, one
 * rounding after each operation.
 */
#ifndef COMMON_BASE_HALF_H
#define COMMON_BASE_HALF_H

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

// Below 2^-14 the spacing of fp16 is that of floats around 0.5: adding 0.5 rounds to it. Above, the
// exponent is rebiased (127 to 15) and the 13 lowest bits of the mantissa are rounded away; a carry
// runs into the exponent as it should.
static inline uint16_t half_to_f16(float value) {
    uint32_t bits = half_bits(value), sign = bits & 0x80000000u, size = bits ^ sign, result;
    if (size > 0x7f800000u)
        result = 0x7e00; // NaN
    else if (size >= 0x47800000u)
        result = 0x7c00; // 65536 and more
    else if (size < 0x38800000u)
        result = half_bits(half_value(size) + 0.5f) - 0x3f000000u;
    else
        result = (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13;
    return (uint16_t)(sign >> 16 | result);
}

static inline float half_from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = (uint32_t)(half & 0x7fff) << 13;
    if (size >= 0x7c00u << 13) return half_value(sign | 0x7f800000u | (size & 0x7fffffu));
    // The exponent is rebiased (15 to 127). A subnormal number has none: with that of 2^-14 it is
    // too large by just this. (Processors are slow to multiply subnormal floats.)
    float value = size < 0x400u << 13 ? half_value(size + 0x38800000u) - 0x1p-14f
                                      : half_value(size + 0x38000000u);
    return half_value(sign | half_bits(value));
}

static inline uint16_t half_to_bf16(float value) {
    uint32_t bits = half_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); // NaN
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float half_from_bf16(uint16_t half) {
    return half_value((uint32_t)half << 16);
}

#endif
