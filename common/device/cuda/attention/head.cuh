/* head.cuh: one head of one text, and the interface between attention's two implementations:
 * ../attention.cu (exact: on FP32 units, any type and size) and mma.cu (on tensor cores).
 */
#ifndef COMMON_DEVICE_CUDA_ATTENTION_HEAD_CUH
#define COMMON_DEVICE_CUDA_ATTENTION_HEAD_CUH

#include "common/device/cuda/half.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

enum { LARGEST_HEAD = 128 };

// q, k and v of token t are qkv[t stride], and channels further each. Block x is the head's.
struct Head {
    Attention of;
    float scale;           // of scores
    size_t stride;         // of tokens in qkv
    size_t channels;       // of tokens in y
    size_t in, out, saved; // where the head begins in qkv, y and the numbers per query
};

static inline __device__ Head head_here(const Attention &of) {
    size_t text = blockIdx.x / of.heads, head = blockIdx.x % of.heads;
    size_t channels = of.heads * of.size, first = text * of.length;
    return {of,
            (float)(1 / sqrt((double)of.size)),
            3 * channels,
            channels,
            first * 3 * channels + head * of.size,
            first * channels + head * of.size,
            blockIdx.x * of.length};
}

// A block per head and tile of `rows` tokens.
static inline dim3 tile_grid(const Attention &of, size_t rows) {
    return dim3((unsigned)(of.batch * of.heads), (unsigned)((of.length + rows - 1) / rows));
}

// A gradient's launch has two blocks per tile: for the gradients of its keys and of its queries.
// The first keys and the last queries have most pairs; blocks with most to do come first.
static inline dim3 gradient_grid(const Attention &of, size_t rows) {
    const dim3 tiles = tile_grid(of, rows);
    return dim3(tiles.x, 2 * tiles.y);
}
struct GradientBlock {
    bool of_keys;
    size_t tile;
};
static inline __device__ GradientBlock gradient_block() {
    const unsigned place = blockIdx.y / 2;
    const bool of_keys = blockIdx.y % 2 == 0;
    return {of_keys, of_keys ? place : gridDim.y / 2 - 1 - place};
}

static inline size_t queries_of(const Attention *of) {
    return of->batch * of->heads * of->length;
}

static inline bool is_empty(const Attention *of) {
    return queries_of(of) * of->size == 0;
}

// A forward pass, and a backward pass after it; all tensors are stored as `precision` says.
struct AttentionForward {
    Precision precision;
    Attention of;
    const void *qkv;
    void *y;
    float *logs; // [batch, heads, length]: the logarithm of a query's sum of exponentials
};
struct AttentionBackward {
    Precision precision;
    Attention of;
    const void *qkv, *y, *dy;
    const float *logs;
    float *means; // [batch, heads, length], workspace
    void *dqkv;
    bool accumulate;
};

// Arguments of a gradient's kernels.
template <typename T> struct AttentionGradient {
    Attention of;
    const T *qkv, *dy;
    const float *logs, *means;
    T *dqkv;
    bool accumulate;
};
template <typename T> static AttentionGradient<T> gradient_of(const AttentionBackward &call) {
    return {call.of,    (const T *)call.qkv, (const T *)call.dy, call.logs,
            call.means, (T *)call.dqkv,      call.accumulate};
}

// Both implementations of each. No tensor is empty.
void attention_exact(const AttentionForward &call);
void attention_exact_gradient(const AttentionBackward &call);
void attention_mma(const AttentionForward &call);
void attention_mma_gradient(const AttentionBackward &call);
// means = dy.y of each query, which is the mean of dy.v under its weights.
void attention_means(const AttentionBackward &call);

// Calls run with the dimensions of the tiles for heads of `size` elements, a compile-time constant.
template <typename Run> static void with_dimensions(size_t size, const Run &run) {
    if (size <= 16)
        run(std::integral_constant<int, 16>{});
    else if (size <= 32)
        run(std::integral_constant<int, 32>{});
    else if (size <= 64)
        run(std::integral_constant<int, 64>{});
    else
        run(std::integral_constant<int, LARGEST_HEAD>{});
}

#endif
