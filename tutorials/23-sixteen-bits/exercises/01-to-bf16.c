/* 01-to-bf16.c: rounding to 16 bits. The task is in 01-to-bf16.h. */
#include "tutorials/23-sixteen-bits/exercises/01-to-bf16.h"

#include <string.h>

// SOLUTION BEGIN
void to_bf16(const float *numbers, uint16_t *halves, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        if ((bits & 0x7fffffff) > 0x7f800000)
            bits |= 0x00400000; // a NaN: a bit of the mantissa that stays
        else
            bits += 0x7fff + (bits >> 16 & 1);
        halves[i] = (uint16_t)(bits >> 16);
    }
}
// SOLUTION END
