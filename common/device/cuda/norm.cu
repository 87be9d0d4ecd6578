/* norm.cu: batch norm, and sums per channel of x[n, c, inner].
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

struct Moments { // x - shift, and its square
    const float *x;
    size_t inner;
    double shift; // the channel's first element
    __device__ void enter(size_t channel) { shift = x[channel * inner]; }
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
    for (int k = 0; k < WIDTH; k++) term.add(sums, x.at[k]...);
}

typedef struct Range {
    size_t begin, end;
} Range;

// Of count elements, those of this block's split (blockIdx.y).
static __device__ Range split_range(size_t count) {
    size_t each = (count + gridDim.y - 1) / gridDim.y, begin = each * blockIdx.y;
    return {begin, begin + each < count ? begin + each : count};
}

// Long runs: parts[splits, c]. n runs of `run` vectors per channel.
template <int WIDTH, typename Term, typename... Inputs>
static __global__ void sum_runs_kernel(Term term, Sums *parts, size_t n, size_t c, size_t run,
                                       const Inputs *...x) {
    size_t channel = blockIdx.x;
    Range range = split_range(n * run);
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
static __device__ void put(float *place, double value, bool accumulate) {
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
        Range range = split_range(n);
        term.enter(column / inner);
        for (size_t row = range.begin + warp; row < range.end; row += warps)
            term.add(&own, x[row * columns + column]...);
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

static ChannelSums plan_sums(CudaDevice *cuda, size_t n, size_t c, size_t inner) {
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

static __device__ size_t warp_channel() {
    return (size_t)blockIdx.x * (CUDA_BLOCK / CUDA_WARP) + threadIdx.x / CUDA_WARP;
}

static dim3 warp_grid(size_t c) {
    size_t warps = CUDA_BLOCK / CUDA_WARP;
    return dim3((unsigned)((c + warps - 1) / warps));
}

// A channel's sums, to all threads of the warp.
static __device__ Sums channel_total(const ChannelSums &sums, size_t channel) {
    Sums own = {0, 0};
    for (size_t i = threadIdx.x % CUDA_WARP; i < sums.splits * sums.width; i += CUDA_WARP) {
        size_t split = i / sums.width, j = i % sums.width;
        const Sums &part = sums.parts[(split * sums.c + channel) * sums.width + j];
        own.first += part.first;
        own.second += part.second;
    }
    return {warp_sum(own.first), warp_sum(own.second)};
}

static __global__ void values_kernel(ChannelSums sums, float *y, bool accumulate) {
    size_t channel = warp_channel();
    if (channel >= sums.c) return;
    Sums total = channel_total(sums, channel);
    if (threadIdx.x % CUDA_WARP == 0) put(&y[channel], total.first, accumulate);
}

void cuda_sum_channels(const float *x, float *sums, bool accumulate, size_t n, size_t c,
                       size_t inner) {
    if (c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums parts = plan_sums(cuda, n, c, inner);
    bool one_part = inner == 1 && parts.splits == 1; // the bias of a linear layer, mostly
    sum_channels(cuda, parts, Values{}, {one_part ? sums : NULL, accumulate}, x);
    if (!one_part) cuda_launch(cuda, values_kernel, warp_grid(c), parts, sums, accumulate);
}

typedef struct Statistics { // where they go; [c], all of them but the counter
    float *mean, *invstd;
    float *running_mean, *running_var; // or NULL
    float momentum, eps;
    int64_t *counter; // [1], counts up; or NULL
} Statistics;

static __device__ void update_running(float *running, double value, float momentum) {
    *running = (float)((1 - (double)momentum) * *running + (double)momentum * value);
}

// squares: the sum of (x - mean)^2
static __device__ void put_statistics(const Statistics &to, size_t channel, double mean,
                                      double squares, double count) {
    to.mean[channel] = (float)mean;
    to.invstd[channel] = (float)(1 / sqrt(squares / count + (double)to.eps));
    if (!to.running_mean) return;
    update_running(&to.running_mean[channel], mean, to.momentum);
    update_running(&to.running_var[channel], squares / (count - 1), to.momentum); // unbiased
}

static __global__ void statistics_kernel(ChannelSums sums, const float *x, Statistics to) {
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
        put_statistics(to, channel, x[channel * sums.inner] + offset, squares, count);
    } else {
        to.mean[channel] = to.invstd[channel] = 0;
    }
}

static void measure(CudaDevice *cuda, const BatchNorm *norm, bool running) {
    if (norm->c == 0) return;
    Statistics to = {
        norm->mean,     norm->invstd, running ? norm->running_mean : NULL,       norm->running_var,
        norm->momentum, norm->eps,    running ? norm->num_batches_tracked : NULL};
    ChannelSums sums = plan_sums(cuda, norm->n, norm->c, norm->inner);
    sum_channels(cuda, sums, Moments{norm->x, norm->inner, 0}, {}, norm->x);
    cuda_launch(cuda, statistics_kernel, warp_grid(norm->c), sums, norm->x, to);
}

// ---- element by element, with numbers of the channel ----------------------------------------

// y[i] = operation(x[i]...) after operation.enter(channel of i), over x[n, c, run] in vectors.
template <int WIDTH, typename Operation, typename... Inputs>
static __global__ void map_channels_kernel(Operation operation, size_t n, size_t c, size_t run,
                                           float *y, const Inputs *...x) {
    size_t count = n * c * run;
    Walk walk = walk_grid(c, run);
    FOR_EACH(i, count) {
        operation.enter(walk.row);
        vector_store(y, i, vector_map<WIDTH, float>(operation, vector_load<WIDTH>(x, i)...));
        walk.next();
    }
}

template <typename Operation, typename... Inputs>
static void map_channels(CudaDevice *cuda, const Operation &operation, size_t n, size_t c,
                         size_t inner, float *y, const Inputs *...x) {
    size_t count = n * c * inner;
    if (count == 0) return;
    if (inner % WIDE == 0 && is_wide(y) && (is_wide(x) && ...))
        cuda_launch(cuda, map_channels_kernel<WIDE, Operation, Inputs...>,
                    cuda_grid(cuda, count / WIDE), operation, n, c, inner / WIDE, y, x...);
    else
        cuda_launch(cuda, map_channels_kernel<1, Operation, Inputs...>, cuda_grid(cuda, count),
                    operation, n, c, inner, y, x...);
}

// The same, added to what is in y if asked for.
template <typename Operation, typename... Inputs>
static void map_channels_to(bool add, CudaDevice *cuda, const Operation &operation, size_t n,
                            size_t c, size_t inner, float *y, const Inputs *...x) {
    if (add)
        map_channels(cuda, Added<Operation>{operation}, n, c, inner, y, y, x...);
    else
        map_channels(cuda, operation, n, c, inner, y, x...);
}

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

struct NormalizeRelu { // relu(the same (+ residual)); a NaN stays one
    Normalize normal;
    __device__ void enter(size_t channel) { normal.enter(channel); }
    static __device__ float relu(float value) { return value < 0 ? 0 : value; }
    __device__ float operator()(float x) const { return relu(normal(x)); }
    __device__ float operator()(float x, float residual) const {
        return relu(normal(x) + residual);
    }
};

struct Stretch { // dy invstd weight
    const float *invstd, *weight;
    float slope;
    __device__ void enter(size_t channel) { slope = invstd[channel] * weight[channel]; }
    __device__ float operator()(float dy) const { return slope * dy; }
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

// ---- one device -----------------------------------------------------------------------------

static void normalize(const BatchNorm *norm, const float *mean, const float *invstd, float *y) {
    map_channels(cuda_current(), Normalize{mean, invstd, norm->weight, norm->bias, 0, 0, 0},
                 norm->n, norm->c, norm->inner, y, norm->x);
}

// The same, then relu if asked for.
static void finish(const BatchNorm *norm, const float *mean, const float *invstd, float *y) {
    CudaDevice *cuda = cuda_current();
    NormalizeRelu operation = {{mean, invstd, norm->weight, norm->bias, 0, 0, 0}};
    size_t n = norm->n, c = norm->c, inner = norm->inner;
    if (!norm->relu)
        normalize(norm, mean, invstd, y);
    else if (norm->residual)
        map_channels(cuda, operation, n, c, inner, y, norm->x, norm->residual);
    else
        map_channels(cuda, operation, n, c, inner, y, norm->x);
}

static void cuda_batch_norm_apply(const BatchNorm *norm, float *y) {
    normalize(norm, norm->mean, norm->invstd, y);
}

static void cuda_batch_norm(const BatchNorm *norm, float *y) {
    if (norm->n * norm->c * norm->inner == 0) {
        if (norm->num_batches_tracked) cuda_elementwise.count_up(norm->num_batches_tracked);
        return;
    }
    measure(cuda_current(), norm, true);
    finish(norm, norm->mean, norm->invstd, y);
}

static __global__ void eval_invstd_kernel(const float *running_var, float eps, float *invstd,
                                          size_t c) {
    FOR_EACH(i, c) invstd[i] = (float)(1 / sqrt((double)running_var[i] + (double)eps));
}

static void eval_invstd(CudaDevice *cuda, const BatchNorm *norm, float *invstd) {
    cuda_launch(cuda, eval_invstd_kernel, cuda_grid(cuda, norm->c), norm->running_var, norm->eps,
                invstd, norm->c);
}

static void cuda_batch_norm_eval(const BatchNorm *norm, float *y) {
    CudaDevice *cuda = cuda_current();
    float *invstd = (float *)cuda_workspace(cuda, norm->c * sizeof *invstd);
    eval_invstd(cuda, norm, invstd);
    finish(norm, norm->running_mean, invstd, y);
}

// What Project subtracts, room[2, c], from a channel's sums over count elements.
static __device__ void put_projection(float *room, size_t c, size_t channel, double first,
                                      double second, double invstd, double count) {
    room[channel] = (float)(first / count);
    room[c + channel] = (float)(second * invstd * invstd / count);
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

// room: what put_projection left there.
static void project(CudaDevice *cuda, const BatchNorm *norm, const float *dy, const float *room,
                    const NormGradient *to) {
    size_t n = norm->n, c = norm->c, inner = norm->inner;
    Project operation = {norm->mean, norm->invstd, norm->weight, room, room + c, 0, 0, 0, 0};
    if (norm->relu)
        map_channels_to(to->add_dx, cuda, operation, n, c, inner, to->dx, norm->x, dy, norm->y);
    else
        map_channels_to(to->add_dx, cuda, operation, n, c, inner, to->dx, norm->x, dy);
}

static void cuda_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    if (norm->c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums sums = plan_sums(cuda, norm->n, norm->c, norm->inner);
    Gradients places = {*to, NULL, to->dx ? sums.room : NULL};
    const float *gradient = dy; // stays as it is: both passes cut it for themselves
    if (norm->relu)
        sum_channels(cuda, sums, Products{norm->mean, 0}, {}, norm->x, gradient, norm->y);
    else
        sum_channels(cuda, sums, Products{norm->mean, 0}, {}, norm->x, gradient);
    cuda_launch(cuda, gradient_kernel, warp_grid(norm->c), sums, norm->invstd, places);
    if (to->dx) project(cuda, norm, dy, sums.room, to);
}

static void cuda_batch_norm_eval_gradient(const BatchNorm *norm, const float *dy,
                                          const NormGradient *to) {
    if (norm->c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums sums = plan_sums(cuda, norm->n, norm->c, norm->inner);
    eval_invstd(cuda, norm, sums.room);
    if (to->dweight || to->dbias) {
        Gradients places = {*to, NULL, NULL};
        sum_channels(cuda, sums, Products{norm->running_mean, 0}, {}, norm->x, dy);
        cuda_launch(cuda, gradient_kernel, warp_grid(norm->c), sums, sums.room, places);
    }
    Stretch stretch = {sums.room, norm->weight, 0};
    if (to->dx)
        map_channels_to(to->add_dx, cuda, stretch, norm->n, norm->c, norm->inner, to->dx, dy);
}

// ---- over several ranks ---------------------------------------------------------------------

static void cuda_batch_norm_statistics(const BatchNorm *norm) {
    measure(cuda_current(), norm, false);
}

// Of one channel, rank by rank: what is known of the first n elements and what a rank says of its
// own give what is known of both (PyTorch's batch_norm_gather_stats, Chan's algorithm).
static __device__ void merge_channel(const float *rows, size_t ranks, const Statistics &to,
                                     size_t c, size_t channel, double total) {
    double n = 0, all_mean = 0, all_squares = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        const float *row = rows + rank * (2 * c + 1);
        double mean = row[channel], invstd = row[c + channel], count = row[2 * c];
        if (count < 1) continue;
        double squares = (1 / (invstd * invstd) - (double)to.eps) * count;
        if (squares < 0) squares = 0; // by rounding, when all x of the rank are equal
        double apart = all_mean - mean, factor = 1 / (n + count);
        all_squares += squares + apart * apart * n * count * factor;
        all_mean = n * factor * all_mean + count * factor * mean;
        n += count;
    }
    put_statistics(to, channel, all_mean, all_squares, total);
}

static __global__ void merge_kernel(const float *rows, size_t ranks, Statistics to, double *count,
                                    size_t c) {
    double total = 0;
    for (size_t rank = 0; rank < ranks; rank++) total += rows[rank * (2 * c + 1) + 2 * c];
    if (blockIdx.x == 0 && threadIdx.x == 0) *count = total;
    if (total > 1) FOR_EACH(i, c) merge_channel(rows, ranks, to, c, i, total);
}

static void cuda_batch_norm_merge(const BatchNorm *norm, const float *rows, size_t ranks,
                                  double *count) {
    CudaDevice *cuda = cuda_current();
    Statistics to = {
        norm->mean, norm->invstd, norm->running_mean, norm->running_var, norm->momentum,
        norm->eps,  NULL};
    cuda_launch(cuda, merge_kernel, cuda_grid(cuda, norm->c), rows, ranks, to, count, norm->c);
}

static void cuda_batch_norm_gradient_sums(const BatchNorm *norm, const float *dy, float *sums,
                                          const NormGradient *to) {
    if (norm->c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums own = plan_sums(cuda, norm->n, norm->c, norm->inner);
    Gradients places = {*to, sums, NULL};
    sum_channels(cuda, own, Products{norm->mean, 0}, {}, norm->x, dy);
    cuda_launch(cuda, gradient_kernel, warp_grid(norm->c), own, norm->invstd, places);
}

static __global__ void projection_kernel(const float *sums, const float *invstd,
                                         const double *count, float *room, size_t c) {
    FOR_EACH(i, c) put_projection(room, c, i, sums[i], sums[c + i], invstd[i], *count);
}

static void cuda_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy,
                                           const float *sums, const double *count,
                                           const NormGradient *to) {
    if (norm->n * norm->c * norm->inner == 0) return;
    CudaDevice *cuda = cuda_current();
    float *room = (float *)cuda_workspace(cuda, 2 * norm->c * sizeof *room);
    cuda_launch(cuda, projection_kernel, cuda_grid(cuda, norm->c), sums, norm->invstd, count, room,
                norm->c);
    project(cuda, norm, dy, room, to);
}

extern "C" const NormKernels cuda_norm = {
    .batch_norm = cuda_batch_norm,
    .batch_norm_eval = cuda_batch_norm_eval,
    .batch_norm_gradient = cuda_batch_norm_gradient,
    .batch_norm_eval_gradient = cuda_batch_norm_eval_gradient,
    .batch_norm_statistics = cuda_batch_norm_statistics,
    .batch_norm_merge = cuda_batch_norm_merge,
    .batch_norm_apply = cuda_batch_norm_apply,
    .batch_norm_gradient_sums = cuda_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = cuda_batch_norm_gradient_apply,
};
