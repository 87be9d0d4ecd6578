/* half_norm.cu: batch norm over images in 16 bits, channels last, and sums per channel. Such images
 * are a matrix with a row per pixel and a column per channel, whose sums norm.cuh knows.
 */
#include "common/device/cuda/half_images.cuh"
#include "common/device/cuda/norm.cuh"

// ---- sums ------------------------------------------------------------------------------------

static __global__ void round_sums_kernel(ChannelSums sums, Precision precision, float *y,
                                         bool accumulate) {
    size_t channel = warp_channel();
    if (channel >= sums.c) return;
    Sums total = channel_total(sums, channel);
    if (threadIdx.x % CUDA_WARP == 0)
        put(&y[channel], rounded(precision, (float)total.first), accumulate);
}

template <typename T>
static void sum_pixels(Precision precision, const uint16_t *x, float *sums, bool accumulate,
                       const ImageSizes &of) {
    CudaDevice *cuda = cuda_current();
    ChannelSums parts = plan_sums(cuda, of.n * of.inner, of.c, 1);
    sum_channels(cuda, parts, Values{}, {}, (const T *)x);
    cuda_launch(cuda, round_sums_kernel, warp_grid(of.c), parts, precision, sums, accumulate);
}

void cuda_half_sum_channels(Precision precision, const uint16_t *x, float *sums, bool accumulate,
                            ImageSizes of) {
    if (of.c > 0) BY_PRECISION(precision, sum_pixels, precision, x, sums, accumulate, of);
}

// ---- element by element, with numbers of the channel ----------------------------------------

template <int WIDTH, typename Operation, typename T, typename... Inputs>
static __device__ Vector<T, WIDTH> map_channels(Operation *operation, size_t channel,
                                                const Vector<Inputs, WIDTH> &...x) {
    Vector<T, WIDTH> y;
    for (int k = 0; k < WIDTH; k++) {
        operation->enter(channel + (size_t)k);
        narrow_to(&y.at[k], (*operation)(widened(x.at[k])...));
    }
    return y;
}

// y[i] = operation(x[i]...) after operation.enter(channel of i), over x[count / c, c].
template <int WIDTH, typename Operation, typename T, typename... Inputs>
static __global__ void map_pixels_kernel(Operation operation, size_t c, size_t count, T *y,
                                         const Inputs *...x) {
    FOR_EACH(i, count / WIDTH)
    vector_store(
        y, i,
        map_channels<WIDTH, Operation, T>(&operation, i * WIDTH % c, vector_load<WIDTH>(x, i)...));
}

template <typename Operation, typename T, typename... Inputs>
static void map_pixels(const Operation &operation, const BatchNorm &of, T *y, const Inputs *...x) {
    const CudaDevice *cuda = cuda_current();
    size_t c = of.c, count = of.n * of.inner * c;
    if (count == 0) return;
    if (c % WIDE == 0 && is_wide(y) && (is_wide(x) && ...))
        cuda_launch(cuda, map_pixels_kernel<WIDE, Operation, T, Inputs...>,
                    cuda_grid(cuda, count / WIDE), operation, c, count, y, x...);
    else
        cuda_launch(cuda, map_pixels_kernel<1, Operation, T, Inputs...>, cuda_grid(cuda, count),
                    operation, c, count, y, x...);
}

// ---- forward ---------------------------------------------------------------------------------

// Rounded, then plus the residual if there is one, then relu if `relu`; NaN stays NaN.
template <typename T> struct HalfNormalize {
    Normalize normal;
    bool relu;
    __device__ void enter(size_t channel) { normal.enter(channel); }
    __device__ float cut(float value) const { return relu && value < 0 ? 0 : value; }
    __device__ float operator()(float x) const { return cut(normal(x)); }
    __device__ float operator()(float x, float residual) const {
        T stored;
        narrow_to(&stored, normal(x));
        return cut(widened(stored) + residual);
    }
};

template <typename T>
static void normalize(const HalfNorm *norm, const float *mean, const float *invstd, uint16_t *y) {
    const BatchNorm &of = norm->of;
    HalfNormalize<T> operation = {{mean, invstd, of.weight, of.bias, 0, 0, 0}, of.relu};
    if (of.relu && norm->residual)
        map_pixels(operation, of, (T *)y, (const T *)norm->x, (const T *)norm->residual);
    else
        map_pixels(operation, of, (T *)y, (const T *)norm->x);
}

template <typename T> static void train(const HalfNorm *norm, uint16_t *y) {
    const BatchNorm &of = norm->of;
    CudaDevice *cuda = cuda_current();
    measure(cuda, &of, plan_sums(cuda, of.n * of.inner, of.c, 1), (const T *)norm->x, true);
    normalize<T>(norm, of.mean, of.invstd, y);
}

void cuda_half_batch_norm(Precision precision, const HalfNorm *norm, uint16_t *y) {
    const BatchNorm &of = norm->of;
    if (of.n * of.c * of.inner > 0)
        BY_PRECISION(precision, train, norm, y);
    else if (of.num_batches_tracked)
        cuda_elementwise.count_up(of.num_batches_tracked);
}

void cuda_half_batch_norm_eval(Precision precision, const HalfNorm *norm, uint16_t *y) {
    CudaDevice *cuda = cuda_current();
    float *invstd = (float *)cuda_workspace(cuda, norm->of.c * sizeof *invstd);
    eval_invstd(cuda, &norm->of, invstd);
    BY_PRECISION(precision, normalize, norm, norm->of.running_mean, invstd, y);
}

// ---- backward --------------------------------------------------------------------------------

template <typename Operation, typename T, typename... Inputs>
static void map_pixels_to(bool add, const Operation &operation, const BatchNorm &of, T *y,
                          const Inputs *...x) {
    if (add)
        map_pixels(Added<Operation>{operation}, of, y, y, x...);
    else
        map_pixels(operation, of, y, x...);
}

// From what put_projection left in room[2, c].
template <typename T>
static void project(const HalfNorm *norm, const float *room, const T *dy, T *dx, bool add) {
    const BatchNorm &of = norm->of;
    const T *x = (const T *)norm->x, *y = (const T *)norm->y;
    Project operation = {of.mean, of.invstd, of.weight, room, room + of.c, 0, 0, 0, 0};
    if (of.relu)
        map_pixels_to(add, operation, of, dx, x, dy, y);
    else
        map_pixels_to(add, operation, of, dx, x, dy);
}

template <typename T>
static void gradient(const HalfNorm *norm, const T *dy, T *dx, const NormGradient *to) {
    const BatchNorm &of = norm->of;
    const T *x = (const T *)norm->x, *y = (const T *)norm->y;
    CudaDevice *cuda = cuda_current();
    ChannelSums sums = plan_sums(cuda, of.n * of.inner, of.c, 1);
    Gradients places = {*to, NULL, dx ? sums.room : NULL};
    if (of.relu)
        sum_channels(cuda, sums, Products{of.mean, 0}, {}, x, dy, y);
    else
        sum_channels(cuda, sums, Products{of.mean, 0}, {}, x, dy);
    cuda_launch(cuda, gradient_kernel, warp_grid(of.c), sums, of.invstd, places);
    if (dx) project(norm, sums.room, dy, dx, to->add_dx);
}

void cuda_half_batch_norm_gradient(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                   uint16_t *dx, const NormGradient *to) {
    if (norm->of.c == 0) return;
    if (precision == PRECISION_F16)
        gradient(norm, (const __half *)dy, (__half *)dx, to);
    else
        gradient(norm, (const __nv_bfloat16 *)dy, (__nv_bfloat16 *)dx, to);
}

// ---- over several ranks ----------------------------------------------------------------------

template <typename T> static void statistics(const HalfNorm *norm) {
    const BatchNorm &of = norm->of;
    CudaDevice *cuda = cuda_current();
    measure(cuda, &of, plan_sums(cuda, of.n * of.inner, of.c, 1), (const T *)norm->x, false);
}

void cuda_half_batch_norm_statistics(Precision precision, const HalfNorm *norm) {
    if (norm->of.c > 0) BY_PRECISION(precision, statistics, norm);
}

void cuda_half_batch_norm_apply(Precision precision, const HalfNorm *norm, uint16_t *y) {
    BY_PRECISION(precision, normalize, norm, norm->of.mean, norm->of.invstd, y);
}

template <typename T>
static void gradient_sums(const HalfNorm *norm, const uint16_t *dy, float *sums,
                          const NormGradient *to) {
    const BatchNorm &of = norm->of;
    CudaDevice *cuda = cuda_current();
    ChannelSums own = plan_sums(cuda, of.n * of.inner, of.c, 1);
    Gradients places = {*to, sums, NULL};
    sum_channels(cuda, own, Products{of.mean, 0}, {}, (const T *)norm->x, (const T *)dy);
    cuda_launch(cuda, gradient_kernel, warp_grid(of.c), own, of.invstd, places);
}

void cuda_half_batch_norm_gradient_sums(Precision precision, const HalfNorm *norm,
                                        const uint16_t *dy, float *sums, const NormGradient *to) {
    if (norm->of.c > 0) BY_PRECISION(precision, gradient_sums, norm, dy, sums, to);
}

template <typename T>
static void gradient_apply(const HalfNorm *norm, const float *room, const uint16_t *dy,
                           uint16_t *dx, bool add) {
    project(norm, room, (const T *)dy, (T *)dx, add);
}

void cuda_half_batch_norm_gradient_apply(Precision precision, const HalfNorm *norm,
                                         const uint16_t *dy, const float *sums, const double *count,
                                         uint16_t *dx, const NormGradient *to) {
    const BatchNorm &of = norm->of;
    if (of.n * of.c * of.inner == 0) return;
    const float *room = projection_of(cuda_current(), &of, sums, count);
    BY_PRECISION(precision, gradient_apply, norm, room, dy, dx, to->add_dx);
}
