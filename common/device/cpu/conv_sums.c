/* conv_sums.c: see conv_sums.h. Compiled with -O3 -ffp-contract=fast: a multiplication and the
 * addition after it become one fused multiply-add, where the instruction set has it.
 */
#include "common/device/cpu/conv_sums.h"

#include <string.h>

#define ALWAYS_INLINE __attribute__((always_inline))

enum { LINE = 16 }; // floats of a cache line

// The rest of a ConvAhead, in cache lines, and how many of them are prefetched at a time: few, and
// often. All at once would fill the buffers of outstanding lines, and the sums' own loads would
// wait.
typedef struct ConvStream {
    const float *at;
    size_t left, lines;
} ConvStream;

static ConvStream stream_of(ConvAhead ahead, size_t times) {
    const size_t all = (ahead.count + LINE - 1) / LINE;
    return (ConvStream){ahead.from, all, all / (times + 1) + 1};
}

ALWAYS_INLINE static inline void stream_prefetch(ConvStream *stream) {
    for (size_t i = 0; i < stream->lines && stream->left > 0; i++, stream->left--) {
        __builtin_prefetch(stream->at, 0, 2); // into the second-level cache
        stream->at += LINE;
    }
}

typedef struct ConvTile {
    size_t k;           // the first of CONV_FILTERS outputs
    size_t c, channels; // a group of channels
    size_t p, count;    // the first pixel, and the pixels that are left
} ConvTile;

#if defined(__x86_64__)
#define LANES         16
#define NAME(x)       x##_avx512
#define TARGET        __attribute__((target("avx512f,avx2,fma")))
#define SUM_VECTORS   6
#define WEIGHT_TAPS   9
#define WEIGHT_BLOCKS 2
#include "common/device/cpu/conv_loops.h"

static bool runs_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
}

#define LANES         8
#define NAME(x)       x##_avx2
#define TARGET        __attribute__((target("avx2,fma")))
#define SUM_VECTORS   3
#define WEIGHT_TAPS   6
#define WEIGHT_BLOCKS 1
#include "common/device/cpu/conv_loops.h"

static bool runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#define LANES   4
#define NAME(x) x##_plain
#define TARGET
#if defined(__aarch64__) // 32 registers
#define SUM_VECTORS 4
#define WEIGHT_TAPS 4
#else
#define SUM_VECTORS 2
#define WEIGHT_TAPS 2
#endif
#define WEIGHT_BLOCKS 1
#include "common/device/cpu/conv_loops.h"

static bool runs_plain(void) {
    return true;
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
enum { PLAIN_IS_FUSED = 1 };
#else
enum { PLAIN_IS_FUSED = 0 };
#endif

const ConvInstructions conv_instructions[] = {
#if defined(__x86_64__)
    {"avx512", runs_avx512, true, sums_avx512, weight_sums_avx512},
    {"avx2", runs_avx2, true, sums_avx2, weight_sums_avx2},
#endif
    {"plain", runs_plain, PLAIN_IS_FUSED, sums_plain, weight_sums_plain},
    {0},
};

const ConvInstructions *conv_fastest(void) {
    const ConvInstructions *set = conv_instructions;
    while (!set->runs_here()) set++;
    return set;
}
