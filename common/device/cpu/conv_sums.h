/* conv_sums.h: a convolution's inner loops, compiled for several instruction sets.
 *
 * Both loops read a lowered image (conv.c): the pixels that one tap of the window sees are
 * neighbours, from `offsets[tap]` of a channel's plane on.
 *
 * The bits of a result are those of the chains of multiply-adds below. Vectors and tiles only
 * decide which elements are computed at the same time, so the instruction sets with fused
 * multiply-add (AVX-512, AVX2 with FMA, NEON) have the same bits. An x86-64 without FMA rounds
 * twice in each multiply-add: other last bits.
 */
#ifndef COMMON_DEVICE_CPU_CONV_SUMS_H
#define COMMON_DEVICE_CPU_CONV_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONV_CHAIN = 256, // multiply-adds of a chain; more if one channel has more taps
    CONV_FILTERS = 4, // outputs whose weights are interleaved
    CONV_BLOCK = 16,  // output channels of a weight gradient that are interleaved
    CONV_CHUNK = 128, // pixels of a chain of a weight gradient
    CONV_SLACK = 16,  // elements behind a lowered image that are read, and ignored
};

typedef struct ConvLowered {
    const float *data;       // [channels, plane], then CONV_SLACK elements
    const uint32_t *offsets; // [taps]
    size_t channels, plane, taps;
} ConvLowered;

// Returns the channels of one chain. Longer sums are made of several chains, added in the order of
// the channels: a float sum of thousands of terms in a row loses digits.
static inline size_t conv_group(const ConvLowered *lowered) {
    const size_t groups = (lowered->channels * lowered->taps + CONV_CHAIN - 1) / CONV_CHAIN;
    return groups > 1 ? (lowered->channels + groups - 1) / groups : lowered->channels;
}

// Memory that is read next, a part of the batch's next image. It is prefetched meanwhile.
typedef struct ConvAhead {
    const float *from;
    size_t count;
} ConvAhead;

// to[k, p] (+)= bias[k] + sum over c, t of weights[k, c, t] lowered[c, offsets[t] + p]
typedef struct ConvSums {
    ConvLowered lowered;
    const float *weights; // [outputs / CONV_FILTERS, c, t, CONV_FILTERS], the last ones padded
    const float *bias;    // NULL: 0
    float *to;            // [outputs, pixels]; outputs are `stride` elements apart
    size_t outputs, pixels, stride;
    bool accumulate;
    ConvAhead ahead;
} ConvSums;

// to[k, c, t] += sum over p of dy[k, p] lowered[c, offsets[t] + first + p]
typedef struct ConvWeightSums {
    ConvLowered lowered;
    size_t first, pixels; // at most CONV_CHUNK
    const float *dy;      // [blocks, CONV_CHUNK, CONV_BLOCK]: output channels side by side
    float *to;            // [blocks, c, t, CONV_BLOCK]
    size_t blocks;
    ConvAhead ahead[2]; // of the image, and of its dy
} ConvWeightSums;

typedef struct ConvInstructions {
    const char *name; // "avx512", "avx2" (with FMA) or "plain": SSE2, or NEON
    bool (*runs_here)(void);
    bool is_fused; // multiply-adds round once
    void (*sums)(const ConvSums *of);
    void (*weight_sums)(const ConvWeightSums *of);
} ConvInstructions;

// Sorted from the fastest to "plain"; ends with an entry without a name.
extern const ConvInstructions conv_instructions[];
// Returns the first one that runs on this processor.
const ConvInstructions *conv_fastest(void);

#endif
