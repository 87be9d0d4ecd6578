/* square_sum.h: the exact sum of squares of SliceKernels (kernels.h), for the backends' files.
 *
 * A float32 is an integer below 2^24 times a power of two. So squares that are rounded to float32
 * (as PyTorch's are) can be added as integers, without any further rounding: in a fixed-point
 * number of SQUARES_LIMBS x 32 bits, whose unit is 2^-149, the smallest float32 (a
 * superaccumulator: Neal, "Fast exact summation using small and large superaccumulators", 2015).
 * The sum depends neither on the order of the elements nor on which process has them.
 *
 *   entry of int64_t sum[SQUARES_SIZE]  contents
 *   k < SQUARES_LIMBS                   the finite squares: the sum of entry k times 2^(32 k - 149)
 *   SQUARES_INF                         how many squares overflowed: elements beyond 1.8e19, inf
 *   SQUARES_NAN                         how many elements are NaN
 *
 * Sums of disjoint sets of elements, up to 2^30, are added entry by entry: an entry has 31 bits to
 * spare for carries.
 *
 * Included by C and, for the GPU, with SQUARE_SUM_INLINE defined as a __device__ function.
 */
#ifndef COMMON_DEVICE_SQUARE_SUM_H
#define COMMON_DEVICE_SQUARE_SUM_H

#include <math.h>
#include <string.h>

#include "common/device/kernels.h"

#ifndef SQUARE_SUM_INLINE
#define SQUARE_SUM_INLINE static inline
#endif

// A square: mantissa 2^(exponent - 149); inf and NaN have their own exponent.
typedef struct Square {
    uint32_t mantissa; // < 2^24; NaN: > 2^23
    int exponent;      // from 0 to SQUARE_SPECIAL
} Square;
enum { SQUARE_BITS = 24, SQUARE_SPECIAL = 254 };

SQUARE_SUM_INLINE Square square_of(float square) {
    uint32_t bits;
    memcpy(&bits, &square, sizeof bits);
    bits &= 0x7fffffff; // clears the sign bit, which a NaN may have (inf - inf on x86)
    const uint32_t hidden = (uint32_t)1 << (SQUARE_BITS - 1), field = bits / hidden;
    const Square subnormal = {bits, 0}, normal = {bits % hidden + hidden, (int)field - 1};
    return field == 0 ? subnormal : normal;
}

// The entry that counts a square with SQUARE_SPECIAL.
SQUARE_SUM_INLINE int square_special_entry(Square square) {
    return square.mantissa == (uint32_t)1 << (SQUARE_BITS - 1) ? SQUARES_INF : SQUARES_NAN;
}

// Cuts value 2^(exponent - 149) at limbs: words[3], for the limbs from the returned one on.
// |value| < 2^63, 0 <= exponent < 256.
SQUARE_SUM_INLINE int square_words(int64_t value, int exponent, int64_t *words) {
    const int64_t factor = (int64_t)1 << exponent % 32, limb = 0xffffffff;
    const int64_t low = (value & limb) * factor, high = (value >> 32) * factor;
    words[0] = low & limb;
    words[1] = (low >> 32) + (high & limb);
    words[2] = high >> 32;
    return exponent / 32;
}

// sum += value 2^(exponent - 149), as square_words.
SQUARE_SUM_INLINE void square_sum_add(int64_t *sum, int64_t value, int exponent) {
    int64_t words[3];
    const int limb = square_words(value, exponent, words);
    for (int k = 0; k < 3; k++) sum[limb + k] += words[k];
}

// Adds the square of x, rounded to float32.
SQUARE_SUM_INLINE void square_sum_add_square(int64_t *sum, float x) {
    const Square square = square_of(x * x);
    if (square.exponent == SQUARE_SPECIAL)
        sum[square_special_entry(square)]++;
    else
        square_sum_add(sum, square.mantissa, square.exponent);
}

// Moves carries to the next limb. Then equal sums have equal limbs: 0 <= limb < 2^32 (the last:
// >= 0).
SQUARE_SUM_INLINE void square_sum_carry(int64_t *sum) {
    for (int k = 0; k + 1 < SQUARES_LIMBS; k++) {
        sum[k + 1] += sum[k] >> 32;
        sum[k] &= 0xffffffff;
    }
}

// The square root of a sum. Carries may be outstanding.
SQUARE_SUM_INLINE double square_sum_root(const int64_t *sum) {
    int64_t limbs[SQUARES_LIMBS];
    double total = 0;
    for (int k = 0; k < SQUARES_LIMBS; k++) limbs[k] = sum[k];
    square_sum_carry(limbs);
    for (int k = SQUARES_LIMBS; k-- > 0;) total = total * 0x1p32 + (double)limbs[k];
    if (sum[SQUARES_NAN] > 0) return (double)NAN;
    return sum[SQUARES_INF] > 0 ? (double)INFINITY : sqrt(total * 0x1p-149);
}

#endif
