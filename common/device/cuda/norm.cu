/* norm.cu: batch norm over float32 [n, c, inner], and sums per channel (how: norm.cuh). */
#include "common/device/cuda/norm.cuh"

// ---- sums and statistics --------------------------------------------------------------------

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

static void measure(CudaDevice *cuda, const BatchNorm *norm, bool running) {
    if (norm->c == 0) return;
    measure(cuda, norm, plan_sums(cuda, norm->n, norm->c, norm->inner), norm->x, running);
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

// The same, added to y if `add`.
template <typename Operation, typename... Inputs>
static void map_channels_to(bool add, CudaDevice *cuda, const Operation &operation, size_t n,
                            size_t c, size_t inner, float *y, const Inputs *...x) {
    if (add)
        map_channels(cuda, Added<Operation>{operation}, n, c, inner, y, y, x...);
    else
        map_channels(cuda, operation, n, c, inner, y, x...);
}

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

// ---- one device -----------------------------------------------------------------------------

static void normalize(const BatchNorm *norm, const float *mean, const float *invstd, float *y) {
    map_channels(cuda_current(), Normalize{mean, invstd, norm->weight, norm->bias, 0, 0, 0},
                 norm->n, norm->c, norm->inner, y, norm->x);
}

// The same, then relu if `relu`.
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

static void cuda_batch_norm_eval(const BatchNorm *norm, float *y) {
    CudaDevice *cuda = cuda_current();
    float *invstd = (float *)cuda_workspace(cuda, norm->c * sizeof *invstd);
    eval_invstd(cuda, norm, invstd);
    finish(norm, norm->running_mean, invstd, y);
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

static void cuda_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy,
                                           const float *sums, const double *count,
                                           const NormGradient *to) {
    if (norm->n * norm->c * norm->inner == 0) return;
    CudaDevice *cuda = cuda_current();
    project(cuda, norm, dy, projection_of(cuda, norm, sums, count), to);
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
