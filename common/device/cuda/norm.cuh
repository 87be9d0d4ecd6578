/* norm.cuh: the sums per channel and the formulas of batch norm that two files share: norm.cu
 * (float32 [n, c, inner]) and half_norm.cu (16 bits, [n, inner, c]: a column per channel).
 *
 * A channel is the work of many blocks, so that a few channels of a large batch fill the card too:
 * every block writes the sums of its split of the channel to the workspace (the parts), and one
 * warp per channel adds the parts up, in a fixed order. How many splits there are depends on the
 * shape alone. Sums are in double, of values from which a typical one has been subtracted first: so
 * a large mean beside a small spread costs no digits, and one pass over x is enough.
 *
 * Neighbours in memory must be read by neighbouring threads. Where a channel's runs of `inner`
 * elements are long, a block walks along the runs of one channel. Where they are short (a matrix:
 * inner is 1), it takes neighbouring columns of the matrix [n, c inner], a column per lane.
 */
#ifndef COMMON_DEVICE_CUDA_NORM_CUH
#define COMMON_DEVICE_CUDA_NORM_CUH

#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- first stage: parts ---------------------------------------------------------------------

struct Sums {
    double first, second;
};

// A term is a struct with what is to be added up: enter(channel), then add(sums, inputs...).

struct Values { // x
    __device__ void enter(size_t) {}
    __device__ void add(Sums *sums, float x) const { sums->first += x; }
};

template <typename T> struct Moments { // x - shift, and its square
    const T *x;
    size_t inner;
    double shift; // the channel's first element
    __device__ void enter(size_t channel) { shift = widened(x[channel * inner]); }
    __device__ void add(Sums *sums, float value) const {
        double centered = value - shift;
        sums->first += centered;
        sums->second += centered * centered;
    }
};

struct Products { // dy, and dy (x - mean); after a relu, dy where y > 0
    const float *mean;
    double center;
    __device__ void enter(size_t channel) { center = mean[channel]; }
    __device__ void add(Sums *sums, float x, float dy) const {
        sums->first += dy;
        sums->second += dy * (x - center);
    }
    __device__ void add(Sums *sums, float x, float dy, float y) const {
        add(sums, x, y > 0 ? dy : 0);
    }
};

template <int WIDTH, typename Term, typename... Inputs>
static __device__ void vector_add(Sums *sums, const Term &term, const Vector<Inputs, WIDTH> &...x) {
    for (int k = 0; k < WIDTH; k++) term.add(sums, widened(x.at[k])...);
}

struct Split {
    size_t begin, end;
};

// Of count elements, those of this block's split (blockIdx.y).
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
    Sums own = {0, 0};
    term.enter(channel);
    Walk walk(n, run, range.begin + threadIdx.x, CUDA_BLOCK);
    for (size_t i = range.begin + threadIdx.x; i < range.end; i += CUDA_BLOCK) {
        size_t index = (walk.row * c + channel) * run + walk.column;
        vector_add(&own, term, vector_load<WIDTH>(x, index)...);
        walk.next();
    }
    own.first = block_sum(own.first);
    own.second = block_sum(own.second);
    if (threadIdx.x == 0) parts[blockIdx.y * c + channel] = own;
}

// A gradient goes into its place, or on top of what other uses of the tensor left there.
static inline __device__ void put(float *place, double value, bool accumulate) {
    *place = accumulate ? *place + (float)value : (float)value;
}

struct Direct {    // where one part is all there is, its first sums need no second stage
    float *values; // [columns]; NULL: the parts are wanted
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
    Sums own = {0, 0};
    if (column < columns) {
        Split range = split_range(n);
        term.enter(column / inner);
        for (size_t row = range.begin + warp; row < range.end; row += warps)
            term.add(&own, widened(x[row * columns + column])...);
    }
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

enum { SHORT_RUN = 16 }; // shorter: 64 bytes are two of the units in which memory is read

static inline ChannelSums plan_sums(CudaDevice *cuda, size_t n, size_t c, size_t inner) {
    bool is_short = inner < SHORT_RUN;
    size_t width = is_short ? inner : 1, columns = c * width;
    size_t blocks = is_short ? (columns + CUDA_WARP - 1) / CUDA_WARP : c; // of one split
    size_t wanted = blocks == 0 ? 0 : (REDUCE_BLOCKS + blocks - 1) / blocks;
    size_t most = is_short ? (n + 63) / 64 : (n * inner + 4095) / 4096; // or they have little to do
    size_t splits = wanted < most ? wanted : most, bytes = splits * columns * sizeof(Sums);
    char *space = (char *)cuda_workspace(cuda, bytes + 2 * c * sizeof(float));
    return {n, c, inner, splits, width, (Sums *)space, (float *)(space + bytes)};
}

// The first stage. Without elements there are no parts.
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
    else if (inner % WIDE == 0 && (is_wide(x) && ...))
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

// A channel's sums, to all threads of the warp.
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

typedef struct Statistics { // where they go; [c], all of them but the counter
    float *mean, *invstd;
    float *running_mean, *running_var; // or NULL
    float momentum, eps;
    int64_t *counter; // [1], counts up; or NULL
} Statistics;

static inline __device__ void update_running(float *running, double value, float momentum) {
    *running = (float)((1 - (double)momentum) * *running + (double)momentum * value);
}

// squares: the sum of (x - mean)^2
static inline __device__ void put_statistics(const Statistics &to, size_t channel, double mean,
                                             double squares, double count) {
    to.mean[channel] = (float)mean;
    to.invstd[channel] = (float)(1 / sqrt(squares / count + (double)to.eps));
    if (!to.running_mean) return;
    update_running(&to.running_mean[channel], mean, to.momentum);
    update_running(&to.running_var[channel], squares / (count - 1), to.momentum); // unbiased
}

template <typename T>
static __global__ void statistics_kernel(ChannelSums sums, const T *x, Statistics to) {
    size_t channel = warp_channel();
    double count = (double)(sums.n * sums.inner);
    if (channel >= sums.c) return;
    Sums total = channel_total(sums, channel);
    if (threadIdx.x % CUDA_WARP != 0) return;
    if (to.counter && channel == 0) *to.counter += 1;
    if (count > 0) {
        double offset = total.first / count; // of the mean from the shift
        double squares = total.second - offset * total.first;
        if (squares < 0) squares = 0; // by rounding, when all x are equal
        put_statistics(to, channel, widened(x[channel * sums.inner]) + offset, squares, count);
    } else {
        to.mean[channel] = to.invstd[channel] = 0;
    }
}

// Writes the statistics of x, and updates the running statistics if `running`.
template <typename T>
static void measure(CudaDevice *cuda, const BatchNorm *norm, ChannelSums sums, const T *x,
                    bool running) {
    Statistics to = {
        norm->mean,     norm->invstd, running ? norm->running_mean : NULL,       norm->running_var,
        norm->momentum, norm->eps,    running ? norm->num_batches_tracked : NULL};
    sum_channels(cuda, sums, Moments<T>{x, sums.inner, 0}, {}, x);
    cuda_launch(cuda, statistics_kernel<T>, warp_grid(norm->c), sums, x, to);
}

// ---- the formulas ---------------------------------------------------------------------------

struct Normalize { // (x - mean) invstd weight + bias
    const float *mean, *invstd, *weight, *bias;
    float center, scale, shift;
    __device__ void enter(size_t channel) {
        center = mean[channel];
        scale = invstd[channel] * weight[channel];
        shift = bias[channel];
    }
    __device__ float operator()(float x) const { return (x - center) * scale + shift; }
};

// The gradient without the two directions that the statistics took out, a shift of all x and a
// stretch about the mean.
struct Project {
    const float *mean, *invstd, *weight;
    const float *dy_mean, *lean; // [c] each, workspace
    float center, slope, level, tilt;
    __device__ void enter(size_t channel) {
        center = mean[channel];
        slope = invstd[channel] * weight[channel];
        level = dy_mean[channel];
        tilt = lean[channel];
    }
    __device__ float operator()(float x, float dy) const {
        return slope * (dy - level - (x - center) * tilt);
    }
    __device__ float operator()(float x, float dy, float y) const { // after a relu
        return (*this)(x, y > 0 ? dy : 0);
    }
};

static __global__ void eval_invstd_kernel(const float *running_var, float eps, float *invstd,
                                          size_t c) {
    FOR_EACH(i, c) invstd[i] = (float)(1 / sqrt((double)running_var[i] + (double)eps));
}

static inline void eval_invstd(CudaDevice *cuda, const BatchNorm *norm, float *invstd) {
    cuda_launch(cuda, eval_invstd_kernel, cuda_grid(cuda, norm->c), norm->running_var, norm->eps,
                invstd, norm->c);
}

// What Project subtracts, room[2, c], from a channel's sums over count elements.
static inline __device__ void put_projection(float *room, size_t c, size_t channel, double first,
                                             double second, double invstd, double count) {
    room[channel] = (float)(first / count);
    room[c + channel] = (float)(second * invstd * invstd / count);
}

static __global__ void projection_kernel(const float *sums, const float *invstd,
                                         const double *count, float *room, size_t c) {
    FOR_EACH(i, c) put_projection(room, c, i, sums[i], sums[c + i], invstd[i], *count);
}

// The same from the sums of all ranks, sums[2, c], over count[1] elements: workspace.
static inline const float *projection_of(CudaDevice *cuda, const BatchNorm *norm, const float *sums,
                                         const double *count) {
    float *room = (float *)cuda_workspace(cuda, 2 * norm->c * sizeof *room);
    cuda_launch(cuda, projection_kernel, cuda_grid(cuda, norm->c), sums, norm->invstd, count, room,
                norm->c);
    return room;
}

typedef struct Gradients { // where the sums of Products go; NULL: not wanted
    NormGradient to;
    float *sums; // [2, c]
    float *room; // [2, c], for Project
} Gradients;

static __global__ void gradient_kernel(ChannelSums sums, const float *invstd, Gradients places) {
    size_t channel = warp_channel(), c = sums.c;
    if (channel >= c) return;
    Sums total = channel_total(sums, channel);
    if (threadIdx.x % CUDA_WARP != 0) return;
    double inverse = invstd[channel];
    if (places.to.dweight)
        put(&places.to.dweight[channel], total.second * inverse, places.to.add_dweight);
    if (places.to.dbias) put(&places.to.dbias[channel], total.first, places.to.add_dbias);
    if (places.sums) {
        places.sums[channel] = (float)total.first;
        places.sums[c + channel] = (float)total.second;
    }
    if (places.room)
        put_projection(places.room, c, channel, total.first, total.second, inverse,
                       (double)(sums.n * sums.inner));
}

#endif
