/* mma.cu: causal attention in 16 bits on tensor cores (fragments.cuh), after FlashAttention-2 (Dao,
 * 2023). It computes what ../attention.cu does, by the same formulas, with the same roundings and
 * without atomics: one kernel for y, one for dq, dk, dv. Only the order of the additions differs.
 *
 * A block has four warps and 64 tokens, "rows"; a warp has 16 of them. Tiles of the other tokens
 * pass through shared memory, 32 at a time (16 in dk, dv of heads above 64). Scores and their
 * gradients stay in registers: as sums of the first product they are, rounded, the left factor of
 * the second (fragments.cuh). Blocks of keys compute both turned, [key, query], for that.
 *
 * A row of a tile in shared memory is 8 elements longer than it has: the eight rows of 16 bytes
 * that ldmatrix reads at a time meet different banks. Heads have a multiple of 8 elements, so that
 * a lane loads 16 bytes; a tile's dimensions behind the head's end are zeros.
 */
#include <math.h>

#include "common/device/cuda/attention/fragments.cuh"
#include "common/device/cuda/attention/head.cuh"

enum { WARPS = 4, THREADS = WARPS * CUDA_WARP, ROWS = WARPS * FRAGMENT };
static const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// ---- tiles --------------------------------------------------------------------------------------

template <typename T, int TOKENS, int DIM> struct HalfTile {
    static const unsigned STRIDE = DIM + 8;
    alignas(16) T at[TOKENS][STRIDE];
};

// The vectors of tokens first, first + 1, ...; zeros behind the text's end and the head's. A thread
// has 8 elements of every STEP-th row.
template <typename T, int TOKENS, int DIM>
static __device__ void tile_load(HalfTile<T, TOKENS, DIM> *tile, const Head &head, const T *x,
                                 size_t stride, size_t first) {
    const int STEP = THREADS / (DIM / 8);
    const int own = threadIdx.x / (DIM / 8), j = threadIdx.x % (DIM / 8) * 8;
    const int size =
        (size_t)j < head.of.size ? (int)min(head.of.length - first, (size_t)TOKENS) : 0;
    const T *from = x + (first + own) * stride + j;
#pragma unroll
    for (int row = 0; row < TOKENS; row += STEP, from += STEP * stride)
        if (own + row < TOKENS) copy_eight(&tile->at[own + row][j], own + row < size ? from : NULL);
}

// A warp's rows times some columns.
template <int COLUMNS> struct WarpSums {
    static const int TILES = COLUMNS / FRAGMENT_COLUMNS;
    Sums16 tile[TILES];
};

template <int COLUMNS> static __device__ void sums_clear(WarpSums<COLUMNS> *sums) {
#pragma unroll
    for (int n = 0; n < WarpSums<COLUMNS>::TILES; n++) sums->tile[n] = {};
}

// The row (of 16) and the column of number `i` of tile n, for this lane.
static __device__ int row_of(int i) {
    return (int)lane_row() + i / 2 * 8;
}
static __device__ int column_of(int n, int i) {
    return n * FRAGMENT_COLUMNS + (int)lane_column() + i % 2;
}

// sums = rows b': left is the warp's rows of a tile
template <typename T, int ROWS_A, int COLUMNS, int DIM>
static __device__ void multiply_rows(WarpSums<COLUMNS> *sums, const HalfTile<T, ROWS_A, DIM> &a,
                                     const HalfTile<T, COLUMNS, DIM> &b) {
    const T *rows = a.at[threadIdx.x / CUDA_WARP * FRAGMENT];
    sums_clear(sums);
#pragma unroll 4 // all of heads of 64; more of larger ones would spill registers
    for (int d = 0; d < DIM; d += FRAGMENT) {
        const Left left = load_left(&rows[d], a.STRIDE);
#pragma unroll
        for (int n = 0; n < WarpSums<COLUMNS>::TILES; n += 2) {
            Right right[2];
            load_rights(right, &b.at[n * FRAGMENT_COLUMNS][d], b.STRIDE);
            multiply_add<T>(&sums->tile[n], left, right[0]);
            multiply_add<T>(&sums->tile[n + 1], left, right[1]);
        }
    }
}

// sums += rounded(a) b
template <typename T, int DIM, int INNER>
static __device__ void add_product(WarpSums<DIM> *sums, const WarpSums<INNER> &a,
                                   const HalfTile<T, INNER, DIM> &b) {
#pragma unroll
    for (int s = 0; s < INNER; s += FRAGMENT) {
        const Sums16 &low = a.tile[s / 8], &high = a.tile[s / 8 + 1];
        const Left left = {pair_of<T>(low.of[0], low.of[1]), pair_of<T>(low.of[2], low.of[3]),
                           pair_of<T>(high.of[0], high.of[1]), pair_of<T>(high.of[2], high.of[3])};
#pragma unroll
        for (int n = 0; n < WarpSums<DIM>::TILES; n += 2) {
            Right right[2];
            load_rights_turned(right, &b.at[s][n * FRAGMENT_COLUMNS], b.STRIDE);
            multiply_add<T>(&sums->tile[n], left, right[0]);
            multiply_add<T>(&sums->tile[n + 1], left, right[1]);
        }
    }
}

// y[first + row] (+)= factor times the sums, of the rows in the text
template <typename T, int DIM>
static __device__ void sums_store(const WarpSums<DIM> &sums, const Head &head, float factor, T *y,
                                  size_t first, bool accumulate) {
#pragma unroll
    for (int n = 0; n < WarpSums<DIM>::TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            size_t token = first + row_of(i), d = column_of(n, i);
            if (token < head.of.length && d < head.of.size)
                put_half(&y[token * head.stride + d], factor * sums.tile[n].of[i], accumulate);
        }
}

// The first of the warp's rows, of the block's.
static __device__ size_t warp_first(size_t first) {
    return first + threadIdx.x / CUDA_WARP * FRAGMENT;
}

// ---- forward ------------------------------------------------------------------------------------

static __device__ float four_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffff, value, 2));
}

static __device__ float four_sum(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}

// The online softmax of a lane's two queries after the tiles of keys so far. Scores are divided by
// ln 2.
template <int DIM> struct Softmax {
    WarpSums<DIM> average; // not yet divided by the sum
    float max[2], sum[2];  // of the scores; of 2^(score - max), over this lane's columns only
};

// Takes in a tile of scores, which become weights. `first` is the warp's first query.
template <int KEYS, int DIM>
static __device__ void take_scores(Softmax<DIM> *now, WarpSums<KEYS> *scores, float scale,
                                   size_t first, size_t first_key) {
#pragma unroll
    for (int side = 0; side < 2; side++) {                            // the lane's two rows
        const int last = (int)(first - first_key) + row_of(2 * side); // the key that is seen last
        float largest = now->max[side], sum = 0;
#pragma unroll
        for (int n = 0; n < WarpSums<KEYS>::TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++) {
                float *score = &scores->tile[n].of[i];
                bool seen = column_of(n, i) <= last;
                *score = seen ? *score * scale : -INFINITY;
                largest = fmaxf(largest, *score);
            }
        largest = four_max(largest); // a number: each query sees the first key
#pragma unroll
        for (int n = 0; n < WarpSums<KEYS>::TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++)
                sum += scores->tile[n].of[i] = power_of_two(scores->tile[n].of[i] - largest);
        float fade = power_of_two(now->max[side] - largest);
        now->max[side] = largest;
        now->sum[side] = now->sum[side] * fade + sum;
#pragma unroll
        for (int n = 0; n < WarpSums<DIM>::TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++) now->average.tile[n].of[i] *= fade;
    }
}

template <typename T, int DIM>
static __device__ void finish(Softmax<DIM> *now, const Head &head, T *y, float *logs,
                              size_t first) {
#pragma unroll
    for (int side = 0; side < 2; side++) {
        size_t token = first + row_of(2 * side);
        float sum = four_sum(now->sum[side]), share = 1 / sum;
        if (token >= head.of.length) continue;
        if (lane_column() == 0) logs[head.saved + token] = now->max[side] * LN_2 + logf(sum);
#pragma unroll
        for (int n = 0; n < WarpSums<DIM>::TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++)
                if ((size_t)column_of(n, i) < head.of.size)
                    narrow_to(&y[head.out + token * head.channels + column_of(n, i)],
                              now->average.tile[n].of[i] * share);
    }
}

template <typename T, int DIM, int KEYS>
static __global__ void __launch_bounds__(THREADS, DIM > 64 ? 2 : 4)
    attention_mma_kernel(Attention of, const T *qkv, T *y, float *logs) {
    __shared__ HalfTile<T, ROWS, DIM> queries;
    __shared__ HalfTile<T, KEYS, DIM> keys, values;
    const Head head = head_here(of);
    size_t first = (size_t)(gridDim.y - 1 - blockIdx.y) * ROWS, end = first + ROWS;
    const size_t own = warp_first(first);
    const T *q = qkv + head.in, *k = q + head.channels, *v = k + head.channels;
    Softmax<DIM> now;
    sums_clear(&now.average);
    for (int side = 0; side < 2; side++) now.max[side] = -INFINITY, now.sum[side] = 0;
    tile_load(&queries, head, q, head.stride, first);
    for (size_t key = 0; key < end && key < of.length; key += KEYS) {
        __syncthreads();
        tile_load(&keys, head, k, head.stride, key);
        tile_load(&values, head, v, head.stride, key);
        __syncthreads();
        if (key >= own + FRAGMENT) continue; // the warp's queries see none of these
        WarpSums<KEYS> scores;
        multiply_rows(&scores, queries, keys);
        take_scores(&now, &scores, head.scale * LOG2_E, own, key);
        add_product<T>(&now.average, scores, values);
    }
    finish(&now, head, y, logs, own);
}

// ---- backward -----------------------------------------------------------------------------------

// Two numbers of each of some queries.
struct Saved {
    float log[ROWS], mean[ROWS];
};

template <int QUERIES>
static __device__ void saved_load(Saved *saved, const Head &head, const float *logs,
                                  const float *means, size_t first) {
    for (unsigned i = threadIdx.x; i < QUERIES; i += THREADS) {
        bool inside = first + i < head.of.length;
        saved->log[i] = inside ? logs[head.saved + first + i] * LOG2_E : 0;
        saved->mean[i] = inside ? means[head.saved + first + i] : 0;
    }
}

// Scores become weights p = exp(score - log), and products dy.v the gradients p (dy.v - mean) of
// the scores. The warp's rows are queries, or keys if `turned`; `query` and `key` are the first of
// each.
template <bool turned, int COLUMNS>
static __device__ void compute_pairs(WarpSums<COLUMNS> *scores, WarpSums<COLUMNS> *products,
                                     const Head &head, const Saved &saved, size_t query,
                                     size_t key) {
    const int QUERIES = turned ? COLUMNS : ROWS;
    const float scale = head.scale * LOG2_E;
    const int own = threadIdx.x / CUDA_WARP * FRAGMENT, gap = (int)(query - key);
    const int inside = head.of.length - query < QUERIES ? (int)(head.of.length - query) : QUERIES;
#pragma unroll
    for (int n = 0; n < WarpSums<COLUMNS>::TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = own + row_of(i), column = column_of(n, i);
            const int q = turned ? column : row, k = turned ? row : column;
            bool seen = q < inside && k <= q + gap;
            float p = seen ? power_of_two(scores->tile[n].of[i] * scale - saved.log[q]) : 0;
            scores->tile[n].of[i] = p;
            products->tile[n].of[i] = seen ? p * (products->tile[n].of[i] - saved.mean[q]) : 0;
        }
}

// On the chip: the block's own tokens (keys and values, or queries and dy), some of the others, and
// the queries' numbers.
template <typename T, int DIM, int OTHERS> struct Pairs {
    HalfTile<T, ROWS, DIM> own[2];
    HalfTile<T, OTHERS, DIM> other[2];
    Saved saved;
};

// dk and dv of the keys first, first + 1, ...: over the queries that see them.
template <typename T, int DIM, int QUERIES>
static __device__ void keys_gradient(Pairs<T, DIM, QUERIES> *on_chip, const AttentionGradient<T> &g,
                                     size_t first) {
    auto &keys = on_chip->own[0], &values = on_chip->own[1];
    auto &queries = on_chip->other[0], &dy = on_chip->other[1];
    const Head head = head_here(g.of);
    const size_t own = warp_first(first);
    WarpSums<DIM> dk, dv;
    sums_clear(&dk);
    sums_clear(&dv);
    tile_load(&keys, head, g.qkv + head.in + head.channels, head.stride, first);
    tile_load(&values, head, g.qkv + head.in + 2 * head.channels, head.stride, first);
    for (size_t query = first; query < g.of.length; query += QUERIES) {
        __syncthreads();
        tile_load(&queries, head, g.qkv + head.in, head.stride, query);
        tile_load(&dy, head, g.dy + head.out, head.channels, query);
        saved_load<QUERIES>(&on_chip->saved, head, g.logs, g.means, query);
        __syncthreads();
        if (query + QUERIES <= own) continue; // none of these sees the warp's keys
        WarpSums<QUERIES> scores, products;
        multiply_rows(&scores, keys, queries);
        multiply_rows(&products, values, dy);
        compute_pairs<true>(&scores, &products, head, on_chip->saved, query, first);
        add_product<T>(&dv, scores, dy);
        add_product<T>(&dk, products, queries);
    }
    T *to = g.dqkv + head.in + head.channels;
    sums_store(dk, head, head.scale, to, own, g.accumulate);
    sums_store(dv, head, 1, to + head.channels, own, g.accumulate);
}

// dq of the queries first, first + 1, ...: over the keys that they see.
template <typename T, int DIM, int KEYS>
static __device__ void queries_gradient(Pairs<T, DIM, KEYS> *on_chip, const AttentionGradient<T> &g,
                                        size_t first) {
    auto &queries = on_chip->own[0], &dy = on_chip->own[1];
    auto &keys = on_chip->other[0], &values = on_chip->other[1];
    const Head head = head_here(g.of);
    const size_t own = warp_first(first), end = first + ROWS;
    WarpSums<DIM> dq;
    sums_clear(&dq);
    tile_load(&queries, head, g.qkv + head.in, head.stride, first);
    tile_load(&dy, head, g.dy + head.out, head.channels, first);
    saved_load<ROWS>(&on_chip->saved, head, g.logs, g.means, first);
    for (size_t key = 0; key < end && key < g.of.length; key += KEYS) {
        __syncthreads();
        tile_load(&keys, head, g.qkv + head.in + head.channels, head.stride, key);
        tile_load(&values, head, g.qkv + head.in + 2 * head.channels, head.stride, key);
        __syncthreads();
        if (key >= own + FRAGMENT) continue;
        WarpSums<KEYS> scores, products;
        multiply_rows(&scores, queries, keys);
        multiply_rows(&products, dy, values);
        compute_pairs<false>(&scores, &products, head, on_chip->saved, first, key);
        add_product<T>(&dq, products, keys);
    }
    sums_store(dq, head, head.scale, g.dqkv + head.in, own, g.accumulate);
}

template <typename T, int DIM, int OTHERS>
static __global__ void __launch_bounds__(THREADS, DIM > 64 ? 2 : 3)
    attention_mma_gradient_kernel(AttentionGradient<T> g) {
    __shared__ Pairs<T, DIM, OTHERS> on_chip;
    const GradientBlock block = gradient_block();
    if (block.of_keys)
        keys_gradient(&on_chip, g, block.tile * ROWS);
    else
        queries_gradient(&on_chip, g, block.tile * ROWS);
}

// ---- launches -----------------------------------------------------------------------------------

template <typename T> static void forward(const AttentionForward &call) {
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions;
        cuda_launch_blocks(cuda_current(), attention_mma_kernel<T, DIM, 32>,
                           {tile_grid(call.of, ROWS), THREADS}, call.of, (const T *)call.qkv,
                           (T *)call.y, call.logs);
    });
}

void attention_mma(const AttentionForward &call) {
    BY_PRECISION(call.precision, forward, call);
}

template <typename T> static void backward(const AttentionBackward &call) {
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions, OTHERS = DIM == LARGEST_HEAD ? 16 : 32;
        cuda_launch_blocks(cuda_current(), attention_mma_gradient_kernel<T, DIM, OTHERS>,
                           {gradient_grid(call.of, ROWS), THREADS}, gradient_of<T>(call));
    });
}

void attention_mma_gradient(const AttentionBackward &call) {
    attention_means(call);
    BY_PRECISION(call.precision, backward, call);
}
