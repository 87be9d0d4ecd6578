/* rng.h: randomness as a pure function of (seed, stream, index).
 *
 * There is no generator state: the value for sample 17 of epoch 3 is the same on every rank, thread
 * and device, in any order of calls. So data augmentation and initialisation are independent of how
 * the work is split. The function is Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed.
 *
 * (The one stateful generator of the project is the Mersenne Twister in data/randperm.h, which
 * exists to reproduce PyTorch's permutations.)
 */
#ifndef COMMON_BASE_RNG_H
#define COMMON_BASE_RNG_H

#include <stdint.h>

// One stream for each use; no two are equal. A parameter's is RNG_STREAM_PARAMETER + its index.
enum {
    RNG_STREAM_AUGMENT = 1,
    RNG_STREAM_TEACHER = 3,
    RNG_STREAM_SYNTHETIC = 4,
    RNG_STREAM_NOISE = 5,
    RNG_STREAM_TEST = 6,
    RNG_STREAM_SHAPES = 7,
    RNG_STREAM_SAMPLE = 8,
    RNG_STREAM_POWER_SGD = 20,
    RNG_STREAM_PARAMETER = 1000,
};

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform in [low, high): 24 random bits, so every value is exactly representable before scaling.
float rng_uniform(uint64_t seed, uint64_t stream, uint64_t index, float low, float high);
float rng_normal(uint64_t seed, uint64_t stream, uint64_t index); // mean 0, variance 1 (Box-Muller)
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound); // [0, bound)

#endif
