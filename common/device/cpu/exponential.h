/* exponential.h: exp for loops that are vectorised.
 *
 * libm's expf is called for one number at a time, and vector libraries give other bits for each
 * instruction set. This one is made of additions, multiplications and integer operations in a fixed
 * order, so that SSE2, AVX2 and AVX-512 compute the same bits (the build never fuses a
 * multiplication with an addition). The polynomial is Cephes's (Moshier), off by at most 1.4 units
 * in the last place. Selections are made on the bits, by masks: around a branch,
 * or a comparison of floats, which may trap, the compiler leaves a loop as it is.
 */
#ifndef COMMON_DEVICE_CPU_EXPONENTIAL_H
#define COMMON_DEVICE_CPU_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

static inline int32_t exponential_bits(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float exponential_from(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// exp(x); 0 below -87.336 and infinite above 87.336; NaN stays NaN.
static inline float exponential(float x) {
    const int32_t limit = 0x42aeac4f, infinite = 0x7f800000, magnitude = 0x7fffffff;
    const float round = 12582912; // 1.5 2^23: adding it leaves no digits behind the point
    int32_t bits = exponential_bits(x), size = bits & magnitude;
    int32_t inside = size < limit ? size : limit;
    float v = exponential_from(inside | (bits & ~magnitude));
    float shifted = v * 1.44269504088896341f + round; // v / ln 2
    float n = shifted - round;
    float r = v - n * 0.693359375f - n * -2.12194440e-4f; // v - n ln 2, in two steps
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1;
    int32_t power = exponential_bits(shifted) - exponential_bits(round); // n
    int32_t result =
        exponential_bits(p * exponential_from((int32_t)((uint32_t)(power + 127) << 23)));
    // All ones where x is NaN, where exp(x) is 0 or infinite, and where x is negative.
    int32_t nan = -(size > infinite), far = -(size > limit), negative = -(bits < 0);
    int32_t edge = (bits & nan) | (infinite & ~nan & ~negative);
    return exponential_from((result & ~far) | (edge & far));
}

#endif
