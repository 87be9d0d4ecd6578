/* 01-to-bf16.h: a float in 16 bits.
 *
 * A float has 32 bits: a sign, 8 bits of exponent, 23 of mantissa. bf16 is its upper half: the same
 * sign and exponent, and 7 bits of mantissa. So a float is converted to bf16 by rounding its bits
 * to a multiple of 2^16, and dropping the lower half:
 *
 * - to the nearest; exactly in the middle, to the one whose last bit is 0 (ties to even). Always
 *   rounding up, or truncating, would make a million errors in the same direction.
 * - A carry from the mantissa into the exponent is right: 1.999999 becomes 2, and the largest float
 *   becomes infinite.
 * - A NaN has an exponent of all ones and a mantissa that is not 0. It must stay a NaN, also where
 *   rounding its bits would give infinity or another number.
 */
#ifndef TUTORIALS_TO_BF16_H
#define TUTORIALS_TO_BF16_H

#include <stdint.h>

// numbers [count] -> halves [count].
void to_bf16(const float *numbers, uint16_t *halves, int count);

#endif
