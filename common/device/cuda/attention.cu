/* attention.cu: causal attention in tiles, after FlashAttention (Dao et al., 2022; Dao, 2023). The
 * weights [length, length] are never in memory: a block has some queries of one head on the chip,
 * takes in keys and values tile by tile, and keeps for each query the largest score so far, the sum
 * of the exponentials relative to it, and the average relative to that ("online softmax"). Saved
 * for the gradient is one number per query, the logarithm of its sum of exponentials; the gradient
 * computes the weights again from it.
 *
 * The gradient has no atomics. Half of its blocks go over the queries for a tile of keys (dk, dv),
 * the other half over the keys for a tile of queries (dq): the scores are computed once more, and
 * every sum has one owner and one order.
 *
 * A block's 256 threads are a square of 16 by 16. For scores, thread (y, x) has the queries
 * y, y + 16, ... and the keys x, x + 16, ... of a tile; for arrays [row, head dimension], the rows
 * y, y + 16, ... and the dimensions x, x + 16, ... The 16 threads of a row are half a warp: they
 * reduce by shuffles. A row of a tile in shared memory is one float longer than it has elements, so
 * that threads with neighbouring keys meet different banks.
 *
 * Limits. Shared memory is static, so a block has 48 KiB at most; the most here is 41,728 bytes
 * (the gradient of heads of up to 64), of which three fit into the 163 KB that blocks have on an
 * sm_80 and five into the 227 KB of an sm_90. So registers decide, 65,536 on both:
 * __launch_bounds__(256, 2) lets a thread have 128, for two blocks at once. It holds 16 sums of
 * averages and 8 scores (forward), or two times 8 sums and two times 4 scores; the compiler takes
 * 78 to 128, and none spills to memory. Every number from shared memory is used two to four times.
 * Tiles above the diagonal are skipped; blocks with most to do come first. A value that is not
 * finite also reaches the tokens before it in its tile (as 0 times it).
 *
 * T is how qkv, y and their gradients are stored: float, or one of the 16-bit types. On the chip
 * all is float32, rounded to T where a factor of PyTorch's would be. Products are float32
 * multiply-adds in every precision: 16 bits save memory here, but no time. In 16 bits
 * attention/mma.cu computes the same on tensor cores; attention/choice.cu decides between the two.
 */
#include <math.h>

#include "common/device/cuda/attention/head.cuh"
#include "common/device/cuda/reduce.cuh"

enum { SIDE = 16 };

// x as a T would hold it.
template <typename T> static __device__ float rounded_to(float x) {
    return widened(narrowed<T>(x));
}

// ---- tiles --------------------------------------------------------------------------------------

template <int ROWS, int COLUMNS> struct Tile { float at[ROWS][COLUMNS + 1]; };

static __device__ unsigned side_y() {
    return threadIdx.x / SIDE;
}
static __device__ unsigned side_x() {
    return threadIdx.x % SIDE;
}

// The vectors of tokens first, first + 1, ...; zeros behind the text's end and the head's.
template <int ROWS, int DIM, typename T>
static __device__ void tile_load(Tile<ROWS, DIM> *tile, const Head &head, const T *x, size_t stride,
                                 size_t first) {
    for (unsigned i = threadIdx.x; i < ROWS * DIM; i += CUDA_BLOCK) {
        unsigned row = i / DIM, j = i % DIM;
        bool inside = first + row < head.of.length && j < head.of.size;
        tile->at[row][j] = inside ? widened(x[(first + row) * stride + j]) : 0.0f;
    }
}

// A thread's elements of a product: rows y, y + 16, ... and columns x, x + 16, ...
template <int ROWS, int COLUMNS> struct Part {
    static const int HIGH = ROWS / SIDE, WIDE = COLUMNS / SIDE;
    float at[HIGH][WIDE];
};

template <int ROWS, int DIM> static __device__ void part_clear(Part<ROWS, DIM> *part) {
#pragma unroll
    for (int i = 0; i < ROWS / SIDE; i++)
#pragma unroll
        for (int j = 0; j < DIM / SIDE; j++) part->at[i][j] = 0;
}

// sums = a b': over a row of a and one of b
template <int ROWS, int COLUMNS, int DIM>
static __device__ void multiply_rows(Part<ROWS, COLUMNS> *sums, const Tile<ROWS, DIM> &a,
                                     const Tile<COLUMNS, DIM> &b) {
    typedef Part<ROWS, COLUMNS> P;
    part_clear(sums);
    for (int d = 0; d < DIM; d++)
#pragma unroll
        for (int i = 0; i < P::HIGH; i++)
#pragma unroll
            for (int j = 0; j < P::WIDE; j++)
                sums->at[i][j] += a.at[side_y() + i * SIDE][d] * b.at[side_x() + j * SIDE][d];
}

// sums += a b
template <int ROWS, int DIM, int INNER>
static __device__ void add_product(Part<ROWS, DIM> *sums, const Tile<ROWS, INNER> &a,
                                   const Tile<INNER, DIM> &b) {
    typedef Part<ROWS, DIM> P;
    for (int s = 0; s < INNER; s++)
#pragma unroll
        for (int i = 0; i < P::HIGH; i++)
#pragma unroll
            for (int j = 0; j < P::WIDE; j++)
                sums->at[i][j] += a.at[side_y() + i * SIDE][s] * b.at[s][side_x() + j * SIDE];
}

// sums += a' b
template <int ROWS, int DIM, int INNER>
static __device__ void add_turned(Part<ROWS, DIM> *sums, const Tile<INNER, ROWS> &a,
                                  const Tile<INNER, DIM> &b) {
    typedef Part<ROWS, DIM> P;
    for (int s = 0; s < INNER; s++)
#pragma unroll
        for (int i = 0; i < P::HIGH; i++)
#pragma unroll
            for (int j = 0; j < P::WIDE; j++)
                sums->at[i][j] += a.at[s][side_y() + i * SIDE] * b.at[s][side_x() + j * SIDE];
}

// y[first + row][j] (+)= sums times factor, of the rows that are in the text
template <int ROWS, int DIM, typename T>
static __device__ void part_store(const Part<ROWS, DIM> &sums, const Head &head, float factor, T *y,
                                  size_t first, bool accumulate) {
    typedef Part<ROWS, DIM> P;
#pragma unroll
    for (int i = 0; i < P::HIGH; i++)
#pragma unroll
        for (int j = 0; j < P::WIDE; j++) {
            size_t token = first + side_y() + i * SIDE, d = side_x() + j * SIDE;
            if (token < head.of.length && d < head.of.size)
                put_half(&y[token * head.stride + d], factor * sums.at[i][j], accumulate);
        }
}

// ---- forward ------------------------------------------------------------------------------------

static __device__ float row_sum(float value) {
    for (int distance = SIDE / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

static __device__ float row_max(float value) {
    for (int distance = SIDE / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// The online softmax of a thread's queries after the tiles of keys so far.
template <int ROWS, int DIM> struct Running {
    Part<ROWS, DIM> average;                  // not yet divided by the sum
    float max[ROWS / SIDE], sum[ROWS / SIDE]; // of the scores; of exp(score - max)
};

// Takes in a tile of scores: the largest and the sums move, `weights` are for the values.
template <typename T, int ROWS, int KEYS, int DIM>
static __device__ void take_scores(Running<ROWS, DIM> *now, const Head &head,
                                   const Part<ROWS, KEYS> &scores, Tile<ROWS, KEYS> *weights,
                                   size_t first_query, size_t first_key) {
    typedef Part<ROWS, KEYS> P;
#pragma unroll
    for (int i = 0; i < P::HIGH; i++) {
        unsigned row = side_y() + i * SIDE;
        float score[P::WIDE], largest = now->max[i], sum = 0;
#pragma unroll
        for (int j = 0; j < P::WIDE; j++) {
            bool seen = first_key + side_x() + j * SIDE <= first_query + row;
            score[j] = seen ? scores.at[i][j] * head.scale : -INFINITY;
            largest = fmaxf(largest, score[j]);
        }
        largest = row_max(largest); // a number: each query sees the first key
#pragma unroll
        for (int j = 0; j < P::WIDE; j++) {
            float weight = expf(score[j] - largest);
            sum += weight;
            weights->at[row][side_x() + j * SIDE] = rounded_to<T>(weight);
        }
        float fade = expf(now->max[i] - largest);
        now->max[i] = largest;
        now->sum[i] = now->sum[i] * fade + row_sum(sum);
#pragma unroll
        for (int j = 0; j < Part<ROWS, DIM>::WIDE; j++) now->average.at[i][j] *= fade;
    }
}

template <int ROWS, int DIM, typename T>
static __device__ void finish(Running<ROWS, DIM> *now, const Head &head, T *y, float *logs,
                              size_t first) {
    typedef Part<ROWS, DIM> P;
#pragma unroll
    for (int i = 0; i < P::HIGH; i++) {
        size_t token = first + side_y() + i * SIDE;
        if (token >= head.of.length) continue;
        if (side_x() == 0) logs[head.saved + token] = now->max[i] + logf(now->sum[i]);
#pragma unroll
        for (int j = 0; j < P::WIDE; j++) {
            unsigned d = side_x() + j * SIDE;
            if (d < head.of.size)
                narrow_to(&y[head.out + token * head.channels + d],
                          now->average.at[i][j] / now->sum[i]);
        }
    }
}

// Keys and values take turns in one tile.
template <typename T, int DIM, int ROWS, int KEYS>
static __global__ void __launch_bounds__(CUDA_BLOCK, 2)
    attention_kernel(Attention of, const T *qkv, T *y, float *logs) {
    __shared__ Tile<ROWS, DIM> queries;
    __shared__ Tile<KEYS, DIM> others;
    __shared__ Tile<ROWS, KEYS> weights;
    const Head head = head_here(of);
    size_t first = (size_t)(gridDim.y - 1 - blockIdx.y) * ROWS, end = first + ROWS;
    const T *q = qkv + head.in, *k = q + head.channels, *v = k + head.channels;
    Running<ROWS, DIM> now;
#pragma unroll
    for (int i = 0; i < ROWS / SIDE; i++) now.max[i] = -INFINITY, now.sum[i] = 0;
    part_clear(&now.average);
    tile_load(&queries, head, q, head.stride, first);
    for (size_t key = 0; key < end && key < of.length; key += KEYS) {
        Part<ROWS, KEYS> scores;
        tile_load(&others, head, k, head.stride, key);
        __syncthreads();
        multiply_rows(&scores, queries, others);
        take_scores<T>(&now, head, scores, &weights, first, key);
        __syncthreads();
        tile_load(&others, head, v, head.stride, key);
        __syncthreads();
        add_product(&now.average, weights, others);
        __syncthreads();
    }
    finish(&now, head, y, logs, first);
}

// ---- backward -----------------------------------------------------------------------------------

// means[batch heads, length]: dy.y of each query, which is the mean of dy.v under its weights. A
// warp has several queries, so that their loads overlap.
enum { QUERIES = 4, MEANS_ROWS = CUDA_BLOCK / CUDA_WARP * QUERIES };

template <typename T>
static __global__ void attention_means_kernel(Attention of, const T *y, const T *dy, float *means) {
    const Head head = head_here(of);
    const unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    const size_t first = (size_t)blockIdx.y * MEANS_ROWS + warp * QUERIES;
    float sum[QUERIES] = {};
    for (size_t j = lane; j < of.size; j += CUDA_WARP)
#pragma unroll
        for (unsigned i = 0; i < QUERIES; i++) {
            const size_t at = head.out + (first + i) * head.channels + j;
            if (first + i < of.length) sum[i] += widened(y[at]) * widened(dy[at]);
        }
#pragma unroll
    for (unsigned i = 0; i < QUERIES; i++) {
        const float all = warp_sum(sum[i]);
        if (lane == 0 && first + i < of.length) means[head.saved + first + i] = all;
    }
}

// On the chip: some queries with their dy, some keys with their values, and each
// pair's weight and gradient of its score.
template <int SIZE, int DIM> struct Pairs {
    Tile<SIZE, DIM> q, dy, k, v;
    Tile<SIZE, SIZE> weights, scores; // [query, key]
};

template <int SIZE, int DIM, typename T>
static __device__ void load_queries(Pairs<SIZE, DIM> *pairs, const Head &head, const T *qkv,
                                    const T *dy, size_t first) {
    tile_load(&pairs->q, head, qkv + head.in, head.stride, first);
    tile_load(&pairs->dy, head, dy + head.out, head.channels, first);
}

template <int SIZE, int DIM, typename T>
static __device__ void load_keys(Pairs<SIZE, DIM> *pairs, const Head &head, const T *qkv,
                                 size_t first) {
    tile_load(&pairs->k, head, qkv + head.in + head.channels, head.stride, first);
    tile_load(&pairs->v, head, qkv + head.in + 2 * head.channels, head.stride, first);
}

// From the tiles: weights p = exp(score - log), and the gradients p (dy.v - mean) of the scores.
template <typename T, int SIZE, int DIM>
static __device__ void compute_pairs(Pairs<SIZE, DIM> *pairs, const Head &head, const float *logs,
                                     const float *means, size_t first_query, size_t first_key) {
    typedef Part<SIZE, SIZE> P;
    P scores, products;
    multiply_rows(&scores, pairs->q, pairs->k);
    multiply_rows(&products, pairs->dy, pairs->v);
#pragma unroll
    for (int i = 0; i < P::HIGH; i++) {
        unsigned row = side_y() + i * SIDE;
        size_t query = first_query + row;
        bool inside = query < head.of.length;
        float log = inside ? logs[head.saved + query] : 0;
        float mean = inside ? means[head.saved + query] : 0;
#pragma unroll
        for (int j = 0; j < P::WIDE; j++) {
            unsigned column = side_x() + j * SIDE;
            bool seen = inside && first_key + column <= query;
            float p = seen ? expf(scores.at[i][j] * head.scale - log) : 0;
            pairs->weights.at[row][column] = rounded_to<T>(p);
            pairs->scores.at[row][column] =
                seen ? rounded_to<T>(p * (products.at[i][j] - mean)) : 0;
        }
    }
}

// dk and dv of the keys first, first + 1, ...: over the queries that see them.
template <typename T, int DIM, int SIZE>
static __device__ void keys_gradient(Pairs<SIZE, DIM> *pairs, const AttentionGradient<T> &g,
                                     size_t first) {
    const Head head = head_here(g.of);
    Part<SIZE, DIM> dk, dv;
    part_clear(&dk);
    part_clear(&dv);
    load_keys(pairs, head, g.qkv, first);
    for (size_t query = first; query < g.of.length; query += SIZE) {
        load_queries(pairs, head, g.qkv, g.dy, query);
        __syncthreads();
        compute_pairs<T>(pairs, head, g.logs, g.means, query, first);
        __syncthreads();
        add_turned(&dv, pairs->weights, pairs->dy);
        add_turned(&dk, pairs->scores, pairs->q);
        __syncthreads();
    }
    T *to = g.dqkv + head.in + head.channels;
    part_store(dk, head, head.scale, to, first, g.accumulate);
    part_store(dv, head, 1, to + head.channels, first, g.accumulate);
}

// dq of the queries first, first + 1, ...: over the keys that they see.
template <typename T, int DIM, int SIZE>
static __device__ void queries_gradient(Pairs<SIZE, DIM> *pairs, const AttentionGradient<T> &g,
                                        size_t first) {
    const Head head = head_here(g.of);
    Part<SIZE, DIM> dq;
    part_clear(&dq);
    load_queries(pairs, head, g.qkv, g.dy, first);
    for (size_t key = 0; key < first + SIZE && key < g.of.length; key += SIZE) {
        load_keys(pairs, head, g.qkv, key);
        __syncthreads();
        compute_pairs<T>(pairs, head, g.logs, g.means, first, key);
        __syncthreads();
        add_product(&dq, pairs->scores, pairs->k);
        __syncthreads();
    }
    part_store(dq, head, head.scale, g.dqkv + head.in, first, g.accumulate);
}

template <typename T, int DIM, int SIZE>
static __global__ void __launch_bounds__(CUDA_BLOCK, 2)
    attention_gradient_kernel(AttentionGradient<T> g) {
    __shared__ Pairs<SIZE, DIM> pairs;
    const GradientBlock block = gradient_block();
    if (block.of_keys)
        keys_gradient(&pairs, g, block.tile * SIZE);
    else
        queries_gradient(&pairs, g, block.tile * SIZE);
}

// ---- the family's part --------------------------------------------------------------------------

size_t cuda_attention_saved(const Attention *of) {
    if (of->size > LARGEST_HEAD) {
        Error err = {};
        error_set(&err, STATUS_USAGE, "heads of %zu elements: on a GPU they have at most %d",
                  of->size, LARGEST_HEAD);
        error_exit(&err);
    }
    return queries_of(of) * sizeof(float);
}

size_t cuda_attention_workspace(Precision precision, const Attention *of) {
    (void)precision;
    return queries_of(of) * sizeof(float);
}

template <typename T> static void forward(const AttentionForward &call) {
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions, ROWS = DIM == LARGEST_HEAD ? 32 : 64;
        cuda_launch(cuda_current(), attention_kernel<T, DIM, ROWS, 32>, tile_grid(call.of, ROWS),
                    call.of, (const T *)call.qkv, (T *)call.y, call.logs);
    });
}

void attention_exact(const AttentionForward &call) {
    BY_PRECISION(call.precision, forward, call);
}

void cuda_attention(Compute how, const Attention *of, const float *qkv, float *y, void *saved) {
    cuda_check_float32(how.precision, "attention to float32");
    if (!is_empty(of)) forward<float>({how.precision, *of, qkv, y, (float *)saved});
}

template <typename T> static void means(const AttentionBackward &call) {
    cuda_launch(cuda_current(), attention_means_kernel<T>, tile_grid(call.of, MEANS_ROWS), call.of,
                (const T *)call.y, (const T *)call.dy, call.means);
}

void attention_means(const AttentionBackward &call) {
    BY_PRECISION(call.precision, means, call);
}

template <typename T> static void backward(const AttentionBackward &call) {
    means<T>(call);
    with_dimensions(call.of.size, [&](auto dimensions) {
        const int DIM = dimensions, SIZE = DIM == LARGEST_HEAD ? 16 : 32;
        cuda_launch(cuda_current(), attention_gradient_kernel<T, DIM, SIZE>,
                    gradient_grid(call.of, SIZE), gradient_of<T>(call));
    });
}

void attention_exact_gradient(const AttentionBackward &call) {
    BY_PRECISION(call.precision, backward, call);
}

void cuda_attention_gradient(Compute how, const Attention *of, const float *qkv, const float *y,
                             const void *saved, const float *dy, float *dqkv, bool accumulate) {
    cuda_check_float32(how.precision, "attention to float32");
    if (!is_empty(of))
        backward<float>({how.precision, *of, qkv, y, dy, (const float *)saved,
                         (float *)how.workspace, dqkv, accumulate});
}
