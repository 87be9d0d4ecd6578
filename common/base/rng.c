/* rng.c: Philox4x32-10, a counter-based generator.
 *
 * Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter of
 * 128 bits is scrambled by ten rounds of multiply and xor under a key of 64 bits. Here the counter
 * is (index, stream) and the key is the seed, so distinct arguments never share a value by overlap,
 * as seeds of a stateful generator can. Tested against the known answers published with the paper.
 */
#include "common/base/rng.h"

#include <math.h>

#include "common/base/error.h"

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t counter[] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                          (uint32_t)(stream >> 32)};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * counter[2];
        counter[0] = (uint32_t)(product1 >> 32) ^ counter[1] ^ key0;
        counter[1] = (uint32_t)product1;
        counter[2] = (uint32_t)(product0 >> 32) ^ counter[3] ^ key1;
        counter[3] = (uint32_t)product0;
        key0 += 0x9E3779B9u; // the golden ratio and sqrt(3) - 1, as the paper's Weyl sequences
        key1 += 0xBB67AE85u;
    }
    return (uint64_t)counter[1] << 32 | counter[0];
}

float rng_uniform(uint64_t seed, uint64_t stream, uint64_t index, float low, float high) {
    float unit = (float)(rng_u64(seed, stream, index) >> 40) * 0x1p-24f;
    float value = low + (high - low) * unit;
    // Rounding can carry the sum up to `high`, which is not in the interval.
    return value < high || !(low < high) ? value : nextafterf(high, low);
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    const double two_pi = 6.283185307179586;
    uint64_t bits = rng_u64(seed, stream, index);
    double radius_bits = ((double)(uint32_t)bits + 1.0) * 0x1p-32; // in (0, 1]: log is finite
    double angle_bits = (double)(uint32_t)(bits >> 32) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(radius_bits)) * cos(two_pi * angle_bits));
}

// The remainder favours small values by less than bound / 2^64, which is not measurable.
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
    CHECK(bound > 0, "no value lies below 0 (stream %llu)", (unsigned long long)stream);
    return rng_u64(seed, stream, index) % bound;
}
