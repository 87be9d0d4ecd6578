/* norm.cu: batch norm, and sums per channel (norm.cuh). T is the type of the tensors. Images in 16
 * bits, whose channels are last, are matrices with a row per pixel (Norm).
 */
#include "common/device/cuda/norm.cuh"

// ---- sums per channel -------------------------------------------------------------------------

static __global__ void values_kernel(ChannelSums sums, Precision rounding, float *y,
                                     bool accumulate) {
    size_t channel = warp_channel();
    if (channel >= sums.c) return;
    Sums total = channel_total(sums, channel);
    if (threadIdx.x % CUDA_WARP == 0)
        put(&y[channel], rounded(rounding, (float)total.first), accumulate);
}

void cuda_sum_channels(const float *x, float *sums, bool accumulate, size_t n, size_t c,
                       size_t inner) {
    if (c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums parts = plan_sums(cuda, n, c, inner);
    bool one_part = inner == 1 && parts.splits == 1; // the bias of a linear layer, mostly
    sum_channels(cuda, parts, Values{}, {one_part ? sums : NULL, accumulate}, x);
    if (!one_part)
        cuda_launch(cuda, values_kernel, warp_grid(c), parts, PRECISION_F32, sums, accumulate);
}

template <typename T>
static void sum_pixels(Precision rounding, const uint16_t *x, float *sums, bool accumulate,
                       const ImageSizes &of) {
    CudaDevice *cuda = cuda_current();
    ChannelSums parts = plan_sums(cuda, of.n * of.inner, of.c, 1);
    sum_channels(cuda, parts, Values{}, {}, (const T *)x);
    cuda_launch(cuda, values_kernel, warp_grid(of.c), parts, rounding, sums, accumulate);
}

void cuda_half_sum_channels(CudaStored as, const uint16_t *x, float *sums, bool accumulate,
                            ImageSizes of) {
    if (of.c > 0) BY_PRECISION(as.stored, sum_pixels, as.rounding, x, sums, accumulate, of);
}

// ---- statistics --------------------------------------------------------------------------------

typedef struct Statistics { // outputs, [c] each
    float *mean, *invstd;
    float *running_mean, *running_var; // or NULL
    float momentum, eps;
    int64_t *counter; // [1], is incremented; or NULL
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

// The gradient, projected orthogonally to the two directions that normalization removes: a shift of
// all x and a stretch about the mean.
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

static void eval_invstd(CudaDevice *cuda, const BatchNorm *norm, float *invstd) {
    cuda_launch(cuda, eval_invstd_kernel, cuda_grid(cuda, norm->c), norm->running_var, norm->eps,
                invstd, norm->c);
}

// Computes room[2, c], the terms that Project subtracts, from a channel's sums over count elements.
static __device__ void put_projection(float *room, size_t c, size_t channel, double first,
                                      double second, double invstd, double count) {
    room[channel] = (float)(first / count);
    room[c + channel] = (float)(second * invstd * invstd / count);
}

static __global__ void projection_kernel(const float *sums, const float *invstd,
                                         const double *count, float *room, size_t c) {
    FOR_EACH(i, c) put_projection(room, c, i, sums[i], sums[c + i], invstd[i], *count);
}

// The same, in the workspace, from the sums of all ranks, sums[2, c], over count[1] elements.
static const float *projection_of(CudaDevice *cuda, const BatchNorm *norm, const float *sums,
                                  const double *count) {
    float *room = (float *)cuda_workspace(cuda, 2 * norm->c * sizeof *room);
    cuda_launch(cuda, projection_kernel, cuda_grid(cuda, norm->c), sums, norm->invstd, count, room,
                norm->c);
    return room;
}

typedef struct Gradients { // outputs of the sums of Products; NULL: not computed
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

// ---- element by element, with numbers of the channel ----------------------------------------

// One vector: of one channel or, ACROSS, of neighbouring channels.
template <bool ACROSS, typename T, int WIDTH, typename Operation, typename... Inputs>
static __device__ Vector<T, WIDTH> map_vector(Operation *operation, size_t channel,
                                              const Vector<Inputs, WIDTH> &...x) {
    Vector<T, WIDTH> y;
    if (!ACROSS) operation->enter(channel);
    for (int k = 0; k < WIDTH; k++) {
        if (ACROSS) operation->enter(channel + (size_t)k);
        narrow_to(&y.at[k], (*operation)(widened(x.at[k])...));
    }
    return y;
}

// y[i] = operation(x[i]...) after operation.enter(channel of i), over a matrix [n, c] (ACROSS) or
// over runs [n, c, columns].
template <int WIDTH, bool ACROSS, typename Operation, typename T, typename... Inputs>
static __global__ void map_channels_kernel(Operation operation, size_t rows, size_t columns,
                                           size_t count, T *y, const Inputs *...x) {
    Walk walk = walk_grid(rows, columns / WIDTH);
    FOR_EACH(i, count / WIDTH) {
        size_t channel = ACROSS ? walk.column * WIDTH : walk.row;
        vector_store(
            y, i, map_vector<ACROSS, T, WIDTH>(&operation, channel, vector_load<WIDTH>(x, i)...));
        walk.next();
    }
}

// Over x[n, c, inner] with the sizes of `of`.
template <typename Operation, typename T, typename... Inputs>
static void map_channels(const Operation &operation, const BatchNorm &of, T *y,
                         const Inputs *...x) {
    const CudaDevice *cuda = cuda_current();
    size_t count = of.n * of.c * of.inner;
    const bool HALVES = !std::is_same_v<T, float>; // are a matrix always
    bool matrix = of.inner == 1;
    size_t rows = matrix ? of.n : of.c, columns = matrix ? of.c : of.inner;
    bool wide = columns % WIDE == 0 && is_wide(y, x...);
    auto kernel = matrix ? wide ? map_channels_kernel<WIDE, true, Operation, T, Inputs...>
                                : map_channels_kernel<1, true, Operation, T, Inputs...>
                  : wide ? map_channels_kernel<WIDE, HALVES, Operation, T, Inputs...>
                         : map_channels_kernel<1, HALVES, Operation, T, Inputs...>;
    if (count > 0)
        cuda_launch(cuda, kernel, cuda_grid(cuda, wide ? count / WIDE : count), operation, rows,
                    columns, count, y, x...);
}

// The same, added to y if `add`.
template <typename Operation, typename T, typename... Inputs>
static void map_channels_to(bool add, const Operation &operation, const BatchNorm &of, T *y,
                            const Inputs *...x) {
    if (add)
        map_channels(Added<Operation>{operation}, of, y, y, x...);
    else
        map_channels(operation, of, y, x...);
}

// Normalized and rounded, then plus the residual if there is one, then relu if `relu`; NaN stays
// NaN.
template <typename T> struct Finish {
    Normalize normal;
    bool relu;
    __device__ void enter(size_t channel) { normal.enter(channel); }
    __device__ float cut(float value) const { return relu && value < 0 ? 0 : value; }
    __device__ float operator()(float x) const { return cut(normal(x)); }
    __device__ float operator()(float x, float residual) const {
        return cut(widened(narrowed<T>(normal(x))) + residual);
    }
};

struct Stretch { // dy invstd weight
    const float *invstd, *weight;
    float slope;
    __device__ void enter(size_t channel) { slope = invstd[channel] * weight[channel]; }
    __device__ float operator()(float dy) const { return slope * dy; }
};

// ---- one device -----------------------------------------------------------------------------

template <typename T>
using Given = std::conditional_t<std::is_same_v<T, float>, BatchNorm, HalfNorm>;

template <typename T> struct Norm { // x[of.n, of.c, of.inner]
    BatchNorm of;
    const T *x, *residual, *y;
    Norm(const BatchNorm *norm) : of(*norm), x(norm->x), residual(norm->residual), y(norm->y) {}
    Norm(const HalfNorm *norm)
        : of(norm->of), x((const T *)norm->x), residual((const T *)norm->residual),
          y((const T *)norm->y) {
        of.n *= of.inner;
        of.inner = 1;
    }
};

template <typename T>
static void normalize(const Norm<T> &norm, const float *mean, const float *invstd, Stored<T> *y) {
    const BatchNorm &of = norm.of;
    Finish<T> operation = {{mean, invstd, of.weight, of.bias, 0, 0, 0}, of.relu};
    if (of.relu && norm.residual)
        map_channels(operation, of, (T *)y, norm.x, norm.residual);
    else
        map_channels(operation, of, (T *)y, norm.x);
}

// Writes the statistics of x, and updates the running statistics if `running`.
template <typename T> static void measure(const Norm<T> &norm, bool running) {
    const BatchNorm &of = norm.of;
    if (of.c == 0) return;
    CudaDevice *cuda = cuda_current();
    Statistics to = {of.mean,     of.invstd, running ? of.running_mean : NULL,       of.running_var,
                     of.momentum, of.eps,    running ? of.num_batches_tracked : NULL};
    ChannelSums sums = plan_sums(cuda, of.n, of.c, of.inner);
    sum_channels(cuda, sums, Moments<T>{norm.x, sums.inner, 0}, {}, norm.x);
    cuda_launch(cuda, statistics_kernel<T>, warp_grid(of.c), sums, norm.x, to);
}

template <typename T> static void batch_norm(const Given<T> *given, Stored<T> *y) {
    const Norm<T> norm(given);
    const BatchNorm &of = norm.of;
    if (of.n * of.c * of.inner > 0) {
        measure(norm, true);
        normalize(norm, of.mean, of.invstd, y);
    } else if (of.num_batches_tracked) {
        cuda_elementwise.count_up(of.num_batches_tracked);
    }
}

template <typename T> static void batch_norm_eval(const Given<T> *given, Stored<T> *y) {
    const Norm<T> norm(given);
    const BatchNorm &of = norm.of;
    CudaDevice *cuda = cuda_current();
    float *invstd = (float *)cuda_workspace(cuda, of.c * sizeof *invstd);
    eval_invstd(cuda, &of, invstd);
    normalize(norm, of.running_mean, invstd, y);
}

// room[2, c]: written by put_projection.
template <typename T>
static void project(const Norm<T> &norm, const float *room, const T *dy, T *dx, bool add) {
    const BatchNorm &of = norm.of;
    Project operation = {of.mean, of.invstd, of.weight, room, room + of.c, 0, 0, 0, 0};
    if (of.relu)
        map_channels_to(add, operation, of, dx, norm.x, dy, norm.y);
    else
        map_channels_to(add, operation, of, dx, norm.x, dy);
}

template <typename T>
static void batch_norm_gradient(const Given<T> *given, const Stored<T> *dy, Stored<T> *dx,
                                const NormGradient *to) {
    const Norm<T> norm(given);
    const BatchNorm &of = norm.of;
    const T *from = (const T *)dy;
    if (of.c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums sums = plan_sums(cuda, of.n, of.c, of.inner);
    Gradients places = {*to, NULL, dx ? sums.room : NULL};
    if (of.relu)
        sum_channels(cuda, sums, Products{of.mean, 0}, {}, norm.x, from, norm.y);
    else
        sum_channels(cuda, sums, Products{of.mean, 0}, {}, norm.x, from);
    cuda_launch(cuda, gradient_kernel, warp_grid(of.c), sums, of.invstd, places);
    if (dx) project(norm, sums.room, from, (T *)dx, to->add_dx);
}

static void cuda_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    batch_norm_gradient<float>(norm, dy, to->dx, to);
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
    if (to->dx) map_channels_to(to->add_dx, stretch, *norm, to->dx, dy);
}

// ---- over several ranks ---------------------------------------------------------------------

template <typename T> static void batch_norm_statistics(const Given<T> *given) {
    measure(Norm<T>(given), false);
}

template <typename T> static void batch_norm_apply(const Given<T> *given, Stored<T> *y) {
    Norm<T> norm(given);
    norm.of.relu = false;
    normalize(norm, norm.of.mean, norm.of.invstd, y);
}

// Merges the ranks' statistics of one channel, rank by rank: mean and sum of squares of the n
// elements so far with those of the next rank (PyTorch's batch_norm_gather_stats, Chan's
// algorithm).
static __device__ void merge_channel(const float *rows, size_t ranks, const Statistics &to,
                                     size_t c, size_t channel, double total) {
    double n = 0, all_mean = 0, all_squares = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        const float *row = rows + rank * (2 * c + 1);
        double mean = row[channel], invstd = row[c + channel], count = row[2 * c];
        if (count < 1) continue;
        double squares = (1 / (invstd * invstd) - (double)to.eps) * count;
        if (squares < 0) squares = 0; // rounding, if all x of the rank are equal
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

template <typename T>
static void batch_norm_gradient_sums(const Given<T> *given, const Stored<T> *dy, float *sums,
                                     const NormGradient *to) {
    const Norm<T> norm(given);
    const BatchNorm &of = norm.of;
    if (of.c == 0) return;
    CudaDevice *cuda = cuda_current();
    ChannelSums own = plan_sums(cuda, of.n, of.c, of.inner);
    Gradients places = {*to, sums, NULL};
    sum_channels(cuda, own, Products{of.mean, 0}, {}, norm.x, (const T *)dy);
    cuda_launch(cuda, gradient_kernel, warp_grid(of.c), own, of.invstd, places);
}

template <typename T>
static void batch_norm_gradient_apply(const Given<T> *given, const Stored<T> *dy, const float *sums,
                                      const double *count, Stored<T> *dx, bool add) {
    const Norm<T> norm(given);
    const BatchNorm &of = norm.of;
    if (of.n * of.c * of.inner == 0) return;
    project(norm, projection_of(cuda_current(), &of, sums, count), (const T *)dy, (T *)dx, add);
}

static void cuda_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy,
                                           const float *sums, const double *count,
                                           const NormGradient *to) {
    batch_norm_gradient_apply<float>(norm, dy, sums, count, to->dx, to->add_dx);
}

extern "C" const NormKernels cuda_norm = {
    .batch_norm = batch_norm<float>,
    .batch_norm_eval = batch_norm_eval<float>,
    .batch_norm_gradient = cuda_batch_norm_gradient,
    .batch_norm_eval_gradient = cuda_batch_norm_eval_gradient,
    .batch_norm_statistics = batch_norm_statistics<float>,
    .batch_norm_merge = cuda_batch_norm_merge,
    .batch_norm_apply = batch_norm_apply<float>,
    .batch_norm_gradient_sums = batch_norm_gradient_sums<float>,
    .batch_norm_gradient_apply = cuda_batch_norm_gradient_apply,
};

// ---- the entries of HalfKernels ----------------------------------------------------------------

void cuda_half_batch_norm(Precision precision, const HalfNorm *norm, uint16_t *y) {
    BY_PRECISION(precision, batch_norm, norm, y);
}

void cuda_half_batch_norm_eval(Precision precision, const HalfNorm *norm, uint16_t *y) {
    BY_PRECISION(precision, batch_norm_eval, norm, y);
}

void cuda_half_batch_norm_gradient(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                   uint16_t *dx, const NormGradient *to) {
    BY_PRECISION(precision, batch_norm_gradient, norm, dy, dx, to);
}

void cuda_half_batch_norm_statistics(Precision precision, const HalfNorm *norm) {
    BY_PRECISION(precision, batch_norm_statistics, norm);
}

void cuda_half_batch_norm_apply(Precision precision, const HalfNorm *norm, uint16_t *y) {
    BY_PRECISION(precision, batch_norm_apply, norm, y);
}

void cuda_half_batch_norm_gradient_sums(Precision precision, const HalfNorm *norm,
                                        const uint16_t *dy, float *sums, const NormGradient *to) {
    BY_PRECISION(precision, batch_norm_gradient_sums, norm, dy, sums, to);
}

void cuda_half_batch_norm_gradient_apply(Precision precision, const HalfNorm *norm,
                                         const uint16_t *dy, const float *sums, const double *count,
                                         uint16_t *dx, const NormGradient *to) {
    BY_PRECISION(precision, batch_norm_gradient_apply, norm, dy, sums, count, dx, to->add_dx);
}
