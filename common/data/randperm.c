/* randperm.c: the Mersenne Twister (Matsumoto and Nishimura, 1998) and PyTorch's shuffle by it.
 *
 * PyTorch seeds the generator with the low 32 bits of its seed and takes one 32-bit word per swap;
 * the remainder's slight bias towards small numbers is reproduced. The generator is local to one
 * call: a permutation depends on its arguments only.
 */
#include "common/data/randperm.h"

#include "common/base/error.h"

enum { MT_WORDS = 624, MT_SHIFT = 397 };

typedef struct MersenneTwister {
    uint32_t word[MT_WORDS];
    size_t next; // index of the next word; MT_WORDS: generate new words first
} MersenneTwister;

static void mt_refill(MersenneTwister *mt) {
    for (size_t i = 0; i < MT_WORDS; i++) {
        uint32_t joined =
            (mt->word[i] & 0x80000000u) | (mt->word[(i + 1) % MT_WORDS] & 0x7fffffffu);
        uint32_t twisted = (joined >> 1) ^ (joined & 1 ? 0x9908b0dfu : 0);
        mt->word[i] = mt->word[(i + MT_SHIFT) % MT_WORDS] ^ twisted;
    }
    mt->next = 0;
}

static uint32_t mt_next(MersenneTwister *mt) {
    if (mt->next == MT_WORDS) mt_refill(mt);
    uint32_t y = mt->word[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

void randperm(size_t n, uint64_t seed, size_t *permutation) {
    CHECK(n < RANDPERM_LIMIT, "randperm of %zu: PyTorch shuffles so many in another way", n);
    MersenneTwister mt = {.word = {(uint32_t)seed}, .next = MT_WORDS};
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = mt.word[i - 1];
        mt.word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    for (size_t i = 0; i < n; i++) permutation[i] = i;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t other = i + mt_next(&mt) % (n - i);
        size_t swapped = permutation[i];
        permutation[i] = permutation[other];
        permutation[other] = swapped;
    }
}
