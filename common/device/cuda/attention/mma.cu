/* mma.cu: causal attention in 16 bits on tensor cores (fragments.cuh), after FlashAttention-2 (Dao,
 * 2023). It computes what ../attention.cu does, by the same formulas, with the same roundings and
 * without atomics: one kernel for y, one for dq, dk, dv. Only the order of the additions differs.
 *
 * A block has four warps. A warp has 16 tokens, "rows", or 32 in the forward pass of heads of up to
 * 64 elements, where each right factor that is read from shared memory serves two products. As left
 * factors the rows stay in registers. Tiles of the other tokens pass through two buffers in shared
 * memory: the next tile is copied while the warps multiply this one. Scores and their gradients
 * stay in registers: as sums of the first product they are, rounded, the left factor of the second
 * (fragments.cuh). Blocks of keys compute both turned, [key, query], for that.
 *
 * A row of a tile in shared memory is 8 elements longer than it has: the eight rows of 16 bytes
 * that ldmatrix reads at a time meet different banks. Heads have a multiple of 8 elements, so that
 * a copy has 16 bytes; a tile's dimensions behind the head's end and its tokens behind the text's
 * are zeros, which add nothing to any gradient.
 */
#include <math.h>

#include "common/device/cuda/attention/fragments.cuh"
#include "common/device/cuda/attention/head.cuh"

enum { WARPS = 4, THREADS = WARPS * CUDA_WARP };
static const float LOG2_E = 1.4426950408889634f;

// Sizes for heads of up to DIM elements: tokens of a tile; fragments of rows per warp, and rows of
// a block. Backward, sums and left factors take twice the registers.
template <int DIM> struct Sizes {
    static const int TOKENS = DIM > 64 ? 32 : 64;
    static const int FORWARD = DIM > 64 ? 1 : 2, FORWARD_ROWS = WARPS * FORWARD * FRAGMENT;
    static const int BACKWARD = 1, BACKWARD_ROWS = WARPS * BACKWARD * FRAGMENT;
};

// ---- rows and tiles -----------------------------------------------------------------------------

// The warp's rows as left factors.
template <int HIGH, int DIM> struct Rows { Left of[HIGH][DIM / FRAGMENT]; };

// The row (of 16) and the column of number `i` of tile n, for this lane.
static __device__ int row_of(int i) {
    return (int)lane_row() + i / 2 * 8;
}
static __device__ int column_of(int n, int i) {
    return n * FRAGMENT_COLUMNS + (int)lane_column() + i % 2;
}

// The first of the warp's rows, of the block's.
template <int HIGH> static __device__ unsigned warp_first(unsigned first) {
    return first + threadIdx.x / CUDA_WARP * HIGH * FRAGMENT;
}

static __device__ unsigned remaining(size_t end, unsigned first) {
    return end > first ? (unsigned)end - first : 0;
}

// The vectors of tokens first, first + 1, ...; zeros behind the text's end and the head's.
template <typename T, int HIGH, int DIM>
static __device__ void rows_load(Rows<HIGH, DIM> *rows, const Head &head, const T *x, size_t stride,
                                 unsigned first) {
#pragma unroll
    for (int h = 0; h < HIGH; h++, first += FRAGMENT)
#pragma unroll
        for (int d = 0; d < DIM; d += FRAGMENT)
            rows->of[h][d / FRAGMENT] =
                left_from(&x[first * stride + d], stride, remaining(head.of.length, first),
                          remaining(head.of.size, d));
}

template <typename T, int DIM> struct HalfTile {
    static const int STRIDE = DIM + 8;
    alignas(16) T at[Sizes<DIM>::TOKENS][STRIDE];
};

// Starts to copy the vectors of tokens first, first + 1, ...; zeros behind the text's end and the
// head's. A thread has 8 elements of every STEP-th token.
template <typename T, int DIM>
static __device__ void tile_start(HalfTile<T, DIM> *tile, const Head &head, const T *x,
                                  size_t stride, unsigned first) {
    const unsigned STEP = THREADS / (DIM / 8), own = threadIdx.x / (DIM / 8);
    const unsigned j = threadIdx.x % (DIM / 8) * 8;
    const unsigned end = j < head.of.size ? (unsigned)head.of.length : 0;
    const T *from = x + (size_t)(first + own) * stride + j;
#pragma unroll
    for (unsigned i = own; i < own + Sizes<DIM>::TOKENS; i += STEP, from += STEP * stride)
        copy_start<16>(&tile->at[i][j], from, first + i < end);
}

// Tiles of the tokens [begin, end), which are some: start(buffer, first token) starts the copies of
// one, body(buffer, first token) works on it while the next is copied to the other of two buffers.
template <int TOKENS, typename Start, typename Body>
static __device__ void for_each_tile(unsigned begin, unsigned end, const Start &start,
                                     const Body &body) {
    unsigned buffer = 0;
    start(buffer, begin);
    for (unsigned first = begin; first < end; first += TOKENS, buffer ^= 1) {
        copies_wait();
        __syncthreads(); // all threads' copies have arrived; no warp reads the other buffer
        if (first + TOKENS < end) start(buffer ^ 1, first + TOKENS);
        body(buffer, first);
    }
}

// ---- products -----------------------------------------------------------------------------------

// A warp's rows times some columns.
template <int HIGH, int COLUMNS> struct WarpSums {
    static const int TILES = COLUMNS / FRAGMENT_COLUMNS;
    Sums16 tile[HIGH][TILES];
};

template <int HIGH, int COLUMNS> static __device__ void sums_clear(WarpSums<HIGH, COLUMNS> *sums) {
#pragma unroll
    for (int h = 0; h < HIGH; h++)
#pragma unroll
        for (int n = 0; n < sums->TILES; n++) sums->tile[h][n] = {};
}

// sums = rows b', b some tokens of a tile
template <typename T, int HIGH, int COLUMNS, int DIM>
static __device__ void multiply_rows(WarpSums<HIGH, COLUMNS> *sums, const Rows<HIGH, DIM> &rows,
                                     const T (*b)[DIM + 8]) {
    sums_clear(sums);
#pragma unroll
    for (int d = 0; d < DIM / FRAGMENT; d++)
#pragma unroll
        for (int n = 0; n < sums->TILES; n += 2) {
            Right right[2];
            load_rights(right, &b[n * FRAGMENT_COLUMNS][d * FRAGMENT], DIM + 8);
#pragma unroll
            for (int h = 0; h < HIGH; h++) {
                multiply_add<T>(&sums->tile[h][n], rows.of[h][d], right[0]);
                multiply_add<T>(&sums->tile[h][n + 1], rows.of[h][d], right[1]);
            }
        }
}

// Two tiles of sums, rounded, as the left factor.
template <typename T> static __device__ Left left_of(const Sums16 &low, const Sums16 &high) {
    return {pair_of<T>(low.of[0], low.of[1]), pair_of<T>(low.of[2], low.of[3]),
            pair_of<T>(high.of[0], high.of[1]), pair_of<T>(high.of[2], high.of[3])};
}

// sums += rounded(a) b, b some tokens of a tile
template <typename T, int HIGH, int DIM, int INNER>
static __device__ void add_product(WarpSums<HIGH, DIM> *sums, const WarpSums<HIGH, INNER> &a,
                                   const T (*b)[DIM + 8]) {
#pragma unroll
    for (int s = 0; s < INNER; s += FRAGMENT) {
        Left left[HIGH];
#pragma unroll
        for (int h = 0; h < HIGH; h++) left[h] = left_of<T>(a.tile[h][s / 8], a.tile[h][s / 8 + 1]);
#pragma unroll
        for (int n = 0; n < sums->TILES; n += 2) {
            Right right[2];
            load_rights_turned(right, &b[s][n * FRAGMENT_COLUMNS], DIM + 8);
#pragma unroll
            for (int h = 0; h < HIGH; h++) {
                multiply_add<T>(&sums->tile[h][n], left[h], right[0]);
                multiply_add<T>(&sums->tile[h][n + 1], left[h], right[1]);
            }
        }
    }
}

// Scores of keys behind their query become -infinity. Rows are queries and columns keys, or the
// other way if `turned`; `row` and `column` are the first ones.
template <bool turned, int HIGH, int COLUMNS>
static __device__ void hide_later_keys(WarpSums<HIGH, COLUMNS> *scores, unsigned row,
                                       unsigned column) {
    const int gap = (int)(row - column);
#pragma unroll
    for (int h = 0; h < HIGH; h++)
#pragma unroll
        for (int n = 0; n < scores->TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = h * FRAGMENT + row_of(i) + gap, c = column_of(n, i);
                const bool seen = turned ? r <= c : c <= r;
                if (!seen) scores->tile[h][n].of[i] = -INFINITY;
            }
}

// Stores two neighbours, or adds them to the stored ones.
template <typename T>
static __device__ void put_pair(T *place, float lower, float upper, bool accumulate) {
    Vector<T, 2> pair = {};
    if (accumulate) pair = vector_load<2>(place, 0);
    put_half(&pair.at[0], lower, accumulate);
    put_half(&pair.at[1], upper, accumulate);
    vector_store(place, 0, pair);
}

// y[first + row] (+)= factor times the sums, of the rows in the text
template <typename T, int HIGH, int DIM>
static __device__ void sums_store(const WarpSums<HIGH, DIM> &sums, const Head &head, float factor,
                                  T *y, unsigned first, bool accumulate) {
#pragma unroll
    for (int h = 0; h < HIGH; h++)
#pragma unroll
        for (int n = 0; n < sums.TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const unsigned token = first + h * FRAGMENT + row_of(i), d = column_of(n, 0);
                const float *pair = &sums.tile[h][n].of[i];
                if (token < head.of.length && d < head.of.size)
                    put_pair(&y[token * head.stride + d], factor * pair[0], factor * pair[1],
                             accumulate);
            }
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

// The online softmax of a lane's queries (two of each fragment) after the keys so far.
template <int HIGH, int DIM> struct Softmax {
    WarpSums<HIGH, DIM> average;      // not yet divided by the sum
    float max[HIGH][2], sum[HIGH][2]; // of scores; of exp(score - max), over this lane's columns
};

template <int HIGH, int DIM> static __device__ void softmax_clear(Softmax<HIGH, DIM> *now) {
    sums_clear(&now->average);
    for (int row = 0; row < 2 * HIGH; row++)
        now->max[row / 2][row % 2] = -INFINITY, now->sum[row / 2][row % 2] = 0;
}

// Takes in scores, which become weights. `scale` is a score's, divided by ln 2.
template <int HIGH, int KEYS, int DIM>
static __device__ void take_scores(Softmax<HIGH, DIM> *now, WarpSums<HIGH, KEYS> *scores,
                                   float scale) {
#pragma unroll
    for (int row = 0; row < 2 * HIGH; row++) {
        const int h = row / 2, side = row % 2; // the lane's two rows of a fragment
        float largest = now->max[h][side], sum = 0;
#pragma unroll
        for (int n = 0; n < scores->TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++)
                largest = fmaxf(largest, scores->tile[h][n].of[i]);
        largest = four_max(largest); // a number: each query sees the first key
        const float fade = power_of_two((now->max[h][side] - largest) * scale);
        const float shift = largest * scale;
#pragma unroll
        for (int n = 0; n < scores->TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++) {
                float *score = &scores->tile[h][n].of[i];
                sum += *score = power_of_two(*score * scale - shift);
            }
        now->max[h][side] = largest;
        now->sum[h][side] = now->sum[h][side] * fade + sum;
#pragma unroll
        for (int n = 0; n < now->average.TILES; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++) now->average.tile[h][n].of[i] *= fade;
    }
}

template <typename T, int HIGH, int DIM>
static __device__ void finish(const Softmax<HIGH, DIM> &now, const Head &head, T *y, float *logs,
                              unsigned first) {
#pragma unroll
    for (int row = 0; row < 2 * HIGH; row++) {
        const int h = row / 2, side = row % 2;
        const unsigned token = first + h * FRAGMENT + row_of(2 * side);
        const float sum = four_sum(now.sum[h][side]), share = 1 / sum;
        if (token >= head.of.length) continue;
        if (lane_column() == 0)
            logs[head.saved + token] = now.max[h][side] * head.scale + logf(sum);
#pragma unroll
        for (int n = 0; n < now.average.TILES; n++) {
            const unsigned d = column_of(n, 0);
            const float *pair = &now.average.tile[h][n].of[2 * side];
            if (d < head.of.size)
                put_pair(&y[head.out + token * head.channels + d], pair[0] * share, pair[1] * share,
                         false);
        }
    }
}

template <typename T, int DIM> struct KeysTile { HalfTile<T, DIM> keys, values; };

template <typename T, int DIM>
static __global__ void __launch_bounds__(THREADS, 2)
    attention_mma_kernel(Attention of, const T *qkv, T *y, float *logs) {
    const int HIGH = Sizes<DIM>::FORWARD, ROWS = Sizes<DIM>::FORWARD_ROWS,
              KEYS = Sizes<DIM>::TOKENS;
    __shared__ KeysTile<T, DIM> tiles[2];
    const Head head = head_here(of);
    const unsigned first = (gridDim.y - 1 - blockIdx.y) * ROWS, own = warp_first<HIGH>(first);
    const T *q = qkv + head.in, *k = q + head.channels, *v = k + head.channels;
    Rows<HIGH, DIM> queries;
    rows_load(&queries, head, q, head.stride, own);
    Softmax<HIGH, DIM> now;
    softmax_clear(&now);
    auto start = [&](unsigned buffer, unsigned key) {
        tile_start(&tiles[buffer].keys, head, k, head.stride, key);
        tile_start(&tiles[buffer].values, head, v, head.stride, key);
    };
    const unsigned end = min(first + ROWS, (unsigned)of.length);
    for_each_tile<KEYS>(0, end, start, [&](unsigned buffer, unsigned key) {
        if (key >= own + HIGH * FRAGMENT) return; // the warp's queries see none of the keys
        WarpSums<HIGH, KEYS> scores;
        multiply_rows(&scores, queries, tiles[buffer].keys.at);
        if (key + KEYS > own) hide_later_keys<false>(&scores, own, key);
        take_scores(&now, &scores, head.scale * LOG2_E);
        add_product(&now.average, scores, tiles[buffer].values.at);
    });
    finish(now, head, y, logs, own);
}

// ---- backward -----------------------------------------------------------------------------------

enum { PIECE = FRAGMENT }; // tokens of a tile that a warp multiplies at a time

struct QueryNumbers {
    float log, mean;
};

// A tile in shared memory: queries and dy with the queries' numbers, or keys and values.
template <typename T, int DIM> struct PairsTile {
    HalfTile<T, DIM> x, y;
    QueryNumbers saved[Sizes<DIM>::TOKENS];
};

// Zeros behind the text's end.
template <typename T, int DIM>
static __device__ void saved_start(PairsTile<T, DIM> *tile, const Head &head,
                                   const AttentionGradient<T> &g, unsigned first) {
    static_assert(THREADS >= 2 * Sizes<DIM>::TOKENS, "a thread copies one number");
    const unsigned i = threadIdx.x / 2, token = first + i;
    const bool is_mean = threadIdx.x % 2 == 1;
    const float *from = (is_mean ? g.means : g.logs) + head.saved + token;
    QueryNumbers *to = &tile->saved[i];
    if (i < Sizes<DIM>::TOKENS)
        copy_start<4>(is_mean ? &to->mean : &to->log, from, token < head.of.length);
}

// Scores become weights p = exp(score - log), and products dy.v the gradients p (dy.v - mean) of
// the scores. of(h, n, i) has the numbers of the query of number i of tile n of fragment h.
template <int HIGH, int COLUMNS, typename Numbers>
static __device__ void compute_pairs(WarpSums<HIGH, COLUMNS> *scores,
                                     WarpSums<HIGH, COLUMNS> *products, float scale,
                                     const Numbers &of) {
#pragma unroll
    for (int h = 0; h < HIGH; h++)
#pragma unroll
        for (int n = 0; n < scores->TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const QueryNumbers query = of(h, n, i);
                float *score = &scores->tile[h][n].of[i], *product = &products->tile[h][n].of[i];
                *score = power_of_two(*score * (scale * LOG2_E) - query.log * LOG2_E);
                *product = *score * (*product - query.mean);
            }
}

// dk and dv of the keys first, first + 1, ...: over the queries that see them.
template <typename T, int DIM>
static __device__ void keys_gradient(PairsTile<T, DIM> *tiles, const AttentionGradient<T> &g,
                                     unsigned first) {
    const int HIGH = Sizes<DIM>::BACKWARD, TOKENS = Sizes<DIM>::TOKENS;
    const Head head = head_here(g.of);
    const unsigned own = warp_first<HIGH>(first);
    const size_t k = head.in + head.channels, v = k + head.channels;
    Rows<HIGH, DIM> keys, values;
    rows_load(&keys, head, g.qkv + k, head.stride, own);
    rows_load(&values, head, g.qkv + v, head.stride, own);
    WarpSums<HIGH, DIM> dk, dv;
    sums_clear(&dk);
    sums_clear(&dv);
    auto start = [&](unsigned buffer, unsigned query) {
        tile_start(&tiles[buffer].x, head, g.qkv + head.in, head.stride, query);
        tile_start(&tiles[buffer].y, head, g.dy + head.out, head.channels, query);
        saved_start(&tiles[buffer], head, g, query);
    };
    for_each_tile<TOKENS>(first, (unsigned)g.of.length, start, [&](unsigned buffer, unsigned tile) {
#pragma unroll 1
        for (int at = 0; at < TOKENS; at += PIECE) {
            const unsigned query = tile + at;
            if (query + PIECE <= own) continue; // none of these sees the warp's keys
            const auto *queries = &tiles[buffer].x.at[at], *dy = &tiles[buffer].y.at[at];
            WarpSums<HIGH, PIECE> scores, products;
            multiply_rows(&scores, keys, queries);
            multiply_rows(&products, values, dy);
            if (query < own + HIGH * FRAGMENT) hide_later_keys<true>(&scores, own, query);
            const QueryNumbers *saved = &tiles[buffer].saved[at];
            compute_pairs(&scores, &products, head.scale,
                          [&](int, int n, int i) { return saved[column_of(n, i)]; });
            add_product(&dv, scores, dy);
            add_product(&dk, products, queries);
        }
    });
    sums_store(dk, head, head.scale, g.dqkv + k, own, g.accumulate);
    sums_store(dv, head, 1, g.dqkv + v, own, g.accumulate);
}

// dq of the queries first, first + 1, ...: over the keys that they see.
template <typename T, int DIM>
static __device__ void queries_gradient(PairsTile<T, DIM> *tiles, const AttentionGradient<T> &g,
                                        unsigned first) {
    const int HIGH = Sizes<DIM>::BACKWARD, TOKENS = Sizes<DIM>::TOKENS;
    const Head head = head_here(g.of);
    const unsigned own = warp_first<HIGH>(first);
    const size_t k = head.in + head.channels, v = k + head.channels;
    Rows<HIGH, DIM> queries, dy;
    rows_load(&queries, head, g.qkv + head.in, head.stride, own);
    rows_load(&dy, head, g.dy + head.out, head.channels, own);
    QueryNumbers saved[HIGH][2] = {};
#pragma unroll
    for (int row = 0; row < 2 * HIGH; row++) {
        const unsigned token = own + row / 2 * FRAGMENT + row_of(row % 2 * 2);
        if (token < head.of.length)
            saved[row / 2][row % 2] = {g.logs[head.saved + token], g.means[head.saved + token]};
    }
    WarpSums<HIGH, DIM> dq;
    sums_clear(&dq);
    auto start = [&](unsigned buffer, unsigned key) {
        tile_start(&tiles[buffer].x, head, g.qkv + k, head.stride, key);
        tile_start(&tiles[buffer].y, head, g.qkv + v, head.stride, key);
    };
    const unsigned end = min(first + Sizes<DIM>::BACKWARD_ROWS, (unsigned)g.of.length);
    for_each_tile<TOKENS>(0, end, start, [&](unsigned buffer, unsigned tile) {
#pragma unroll 1
        for (int at = 0; at < TOKENS; at += PIECE) {
            const unsigned key = tile + at;
            if (key >= own + HIGH * FRAGMENT) return;
            const auto *keys = &tiles[buffer].x.at[at], *values = &tiles[buffer].y.at[at];
            WarpSums<HIGH, PIECE> scores, products;
            multiply_rows(&scores, queries, keys);
            multiply_rows(&products, dy, values);
            if (key + PIECE > own) hide_later_keys<false>(&scores, own, key);
            compute_pairs(&scores, &products, head.scale,
                          [&](int h, int, int i) { return saved[h][i / 2]; });
            add_product(&dq, products, keys);
        }
    });
    sums_store(dq, head, head.scale, g.dqkv + head.in, own, g.accumulate);
}

template <typename T, int DIM>
static __global__ void __launch_bounds__(THREADS, DIM > 64 ? 2 : 3)
    attention_mma_gradient_kernel(AttentionGradient<T> g) {
    __shared__ PairsTile<T, DIM> tiles[2];
    const GradientBlock block = gradient_block();
    const unsigned first = (unsigned)block.tile * Sizes<DIM>::BACKWARD_ROWS;
    if (block.of_keys)
        keys_gradient(tiles, g, first);
    else
        queries_gradient(tiles, g, first);
}

// ---- launches -----------------------------------------------------------------------------------

template <typename T> static void forward(const AttentionForward &call) {
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions;
        cuda_launch_blocks(cuda_current(), attention_mma_kernel<T, DIM>,
                           {tile_grid(call.of, Sizes<DIM>::FORWARD_ROWS), THREADS}, call.of,
                           (const T *)call.qkv, (T *)call.y, call.logs);
    });
}

void attention_mma(const AttentionForward &call) {
    BY_PRECISION(call.precision, forward, call);
}

template <typename T> static void backward(const AttentionBackward &call) {
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions;
        cuda_launch_blocks(cuda_current(), attention_mma_gradient_kernel<T, DIM>,
                           {gradient_grid(call.of, Sizes<DIM>::BACKWARD_ROWS), THREADS},
                           gradient_of<T>(call));
    });
}

void attention_mma_gradient(const AttentionBackward &call) {
    attention_means(call);
    BY_PRECISION(call.precision, backward, call);
}
