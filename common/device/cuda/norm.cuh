/* norm.cuh: sums per channel of float32 [n, c, inner] and of 16 bits [n, inner, c], which is
 * [n inner, c, 1], for batch norm (norm.cu) and layer norm (transformer.cu).
 *
 * Several blocks share a channel, so that a few channels of a large batch also fill the card: every
 * block writes the sums of its split of the channel to the workspace (the parts), and one warp per
 * channel accumulates the parts in a fixed order. The number of splits depends on the shape alone.
 * A thread's sums are LaneSums, and those over threads are in double; the moments are of
 * differences from the channel's first element: one pass over x is accurate even if the mean is
 * much larger than the deviation, or if that element is far from all others.
 *
 * Accesses are coalesced. Where a channel's runs of `inner` elements are long, a block walks along
 * the runs of one channel. Where they are short (a matrix: inner is 1), it processes neighbouring
 * columns of the matrix [n, c inner], one per lane.
 */
#ifndef COMMON_DEVICE_CUDA_NORM_CUH
#define COMMON_DEVICE_CUDA_NORM_CUH

#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- rows: a warp each ------------------------------------------------------------------------

enum { WARPS = CUDA_BLOCK / CUDA_WARP };

// The number of blocks for `count` items, of which a block takes `each` at a time, repeatedly if
// there are more than the grid covers.
static inline unsigned grid_of(const CudaDevice *cuda, size_t count, size_t each) {
    size_t needed = (count + each - 1) / each, most = (size_t)cuda->processors * 8;
    return (unsigned)(needed < most ? needed : most);
}

// for every row once, over the grid's warps; `lane` is the thread's.
#define FOR_EACH_ROW(row, lane, rows)                                                     \
    const unsigned lane = threadIdx.x % CUDA_WARP;                                        \
    for (size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / CUDA_WARP; row < (rows); \
         row += (size_t)gridDim.x * WARPS)

// ---- first stage: parts ---------------------------------------------------------------------

struct Sums {
    double first, second;
};

struct LaneSums { // a thread's
    LaneSum first, second;
    __device__ Sums value() const { return {first.value(), second.value()}; }
};

// A term is a struct: enter(channel) and, for the rows of a matrix, enter_row(row) load their
// numbers, add(sums, inputs...) accumulates.

struct Values { // x
    __device__ void enter(size_t) {}
    __device__ void enter_row(size_t) {}
    __device__ void add(LaneSums *sums, float x) const { sums->first.add(x); }
};

template <typename T> struct Moments { // x - shift, and its square
    const T *x;
    size_t inner;
    float shift; // the channel's first element
    __device__ void enter(size_t channel) { shift = widened(x[channel * inner]); }
    __device__ void enter_row(size_t) {}
    __device__ void add(LaneSums *sums, float value) const {
        float centered = __fsub_rn(value, shift);
        sums->first.add(centered);
        sums->second.add_square(centered);
        if (sizeof(T) < sizeof(float)) return; // the difference of two halves is exact
        float of_value = __fadd_rn(centered, shift);
        float lost = __fsub_rn(value, of_value) + __fsub_rn(__fsub_rn(of_value, centered), shift);
        sums->first.errors += lost;
        sums->second.errors += 2 * centered * lost;
    }
};

struct Products { // dy, and dy (x - mean); with a relu's output y, dy is masked with y > 0
    const float *mean;
    float center;
    __device__ void enter(size_t channel) { center = mean[channel]; }
    __device__ void enter_row(size_t) {}
    __device__ void add(LaneSums *sums, float x, float dy) const {
        sums->first.add(dy);
        sums->second.add(dy * (x - center));
    }
    __device__ void add(LaneSums *sums, float x, float dy, float y) const {
        add(sums, x, y > 0 ? dy : 0);
    }
};

template <int WIDTH, typename Term, typename... Inputs>
static __device__ void vector_add(LaneSums *sums, const Term &term,
                                  const Vector<Inputs, WIDTH> &...x) {
    for (int k = 0; k < WIDTH; k++) term.add(sums, widened(x.at[k])...);
}

struct Split {
    size_t begin, end;
};

// The range of this block's split (blockIdx.y) of count elements.
static inline __device__ Split split_range(size_t count) {
    size_t each = (count + gridDim.y - 1) / gridDim.y, begin = each * blockIdx.y;
    return {begin, begin + each < count ? begin + each : count};
}

// Long runs: parts[splits, c]. n runs of `run` vectors per channel.
template <int WIDTH, typename Term, typename... Inputs>
static __global__ void sum_runs_kernel(Term term, Sums *parts, size_t n, size_t c, size_t run,
                                       const Inputs *...x) {
    size_t channel = blockIdx.x;
    Split range = split_range(n * run);
    LaneSums own = {};
    term.enter(channel);
    Walk walk(n, run, range.begin + threadIdx.x, CUDA_BLOCK);
    for (size_t i = range.begin + threadIdx.x; i < range.end; i += CUDA_BLOCK) {
        size_t index = (walk.row * c + channel) * run + walk.column;
        vector_add(&own, term, vector_load<WIDTH>(x, index)...);
        walk.next();
    }
    Sums all = own.value();
    all.first = block_sum(all.first);
    all.second = block_sum(all.second);
    if (threadIdx.x == 0) parts[blockIdx.y * c + channel] = all;
}

struct Direct {    // with a single part, the first stage writes the result
    float *values; // [columns]; NULL: writes the parts
    bool accumulate;
};

// Short runs: parts[splits, columns], columns = c inner. Each warp takes every eighth row.
template <typename Term, typename... Inputs>
static __global__ void sum_columns_kernel(Term term, Sums *parts, Direct direct, size_t n,
                                          size_t columns, size_t inner, const Inputs *...x) {
    const unsigned warps = CUDA_BLOCK / CUDA_WARP;
    unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    size_t column = (size_t)blockIdx.x * CUDA_WARP + lane;
    __shared__ Sums of_warp[warps][CUDA_WARP];
    LaneSums mine = {};
    if (column < columns) {
        Split range = split_range(n);
        term.enter(column / inner);
        for (size_t row = range.begin + warp; row < range.end; row += warps) {
            term.enter_row(row);
            term.add(&mine, widened(x[row * columns + column])...);
        }
    }
    Sums own = mine.value();
    of_warp[warp][lane] = own;
    __syncthreads();
    if (warp > 0 || column >= columns) return;
    for (unsigned i = 1; i < warps; i++) {
        own.first += of_warp[i][lane].first;
        own.second += of_warp[i][lane].second;
    }
    if (direct.values)
        put(&direct.values[column], own.first, direct.accumulate);
    else
        parts[blockIdx.y * columns + column] = own;
}

// Sums per channel of x[n, c, inner], between the two stages.
typedef struct ChannelSums {
    size_t n, c, inner;
    size_t splits, width; // parts[splits, c, width], workspace
    Sums *parts;
    float *room; // [2, c], workspace that is free for the second stage
} ChannelSums;

enum { SHORT_RUN = 16 }; // elements; 64 bytes are two sectors, the unit of memory reads

static inline ChannelSums plan_sums(CudaDevice *cuda, size_t n, size_t c, size_t inner) {
    bool is_short = inner < SHORT_RUN;
    size_t width = is_short ? inner : 1, columns = c * width;
    size_t blocks = is_short ? (columns + CUDA_WARP - 1) / CUDA_WARP : c; // of one split
    size_t wanted = blocks == 0 ? 0 : (REDUCE_BLOCKS + blocks - 1) / blocks;
    size_t most = is_short ? (n + 63) / 64 : (n * inner + 4095) / 4096; // enough work per split
    size_t splits = wanted < most ? wanted : most, bytes = splits * columns * sizeof(Sums);
    char *space = (char *)cuda_workspace(cuda, bytes + 2 * c * sizeof(float));
    return {n, c, inner, splits, width, (Sums *)space, (float *)(space + bytes)};
}

// The first stage. An empty tensor has no parts.
template <typename Term, typename... Inputs>
static void sum_channels(CudaDevice *cuda, const ChannelSums &sums, const Term &term,
                         const Direct &direct, const Inputs *...x) {
    size_t n = sums.n, c = sums.c, inner = sums.inner, columns = c * sums.width;
    dim3 short_grid((unsigned)((columns + CUDA_WARP - 1) / CUDA_WARP), (unsigned)sums.splits);
    dim3 grid((unsigned)c, (unsigned)sums.splits);
    if (n * c * inner == 0) return;
    if (inner < SHORT_RUN)
        cuda_launch(cuda, sum_columns_kernel<Term, Inputs...>, short_grid, term, sums.parts, direct,
                    n, columns, inner, x...);
    else if (inner % WIDE == 0 && is_wide(x...))
        cuda_launch(cuda, sum_runs_kernel<WIDE, Term, Inputs...>, grid, term, sums.parts, n, c,
                    inner / WIDE, x...);
    else
        cuda_launch(cuda, sum_runs_kernel<1, Term, Inputs...>, grid, term, sums.parts, n, c, inner,
                    x...);
}

// ---- second stage: a warp per channel -------------------------------------------------------

static inline __device__ size_t warp_channel() {
    return (size_t)blockIdx.x * (CUDA_BLOCK / CUDA_WARP) + threadIdx.x / CUDA_WARP;
}

static inline dim3 warp_grid(size_t c) {
    size_t warps = CUDA_BLOCK / CUDA_WARP;
    return dim3((unsigned)((c + warps - 1) / warps));
}

// Returns the channel's sums to all threads of the warp.
static inline __device__ Sums channel_total(const ChannelSums &sums, size_t channel) {
    Sums own = {0, 0};
    for (size_t i = threadIdx.x % CUDA_WARP; i < sums.splits * sums.width; i += CUDA_WARP) {
        size_t split = i / sums.width, j = i % sums.width;
        const Sums &part = sums.parts[(split * sums.c + channel) * sums.width + j];
        own.first += part.first;
        own.second += part.second;
    }
    return {warp_sum(own.first), warp_sum(own.second)};
}

#endif
