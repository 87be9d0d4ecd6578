/* half.cu: tensors in 16 bits, images with the channels last: all that is neither linear (blas.c)
 * nor attention (attention.cu) nor convolution (half_conv.cu) nor batch norm (half_norm.cu). One
 * thread makes one element, in float32, and rounds it; neighbouring threads have neighbouring
 * channels of the same pixel, which lie side by side.
 */
#include "common/device/cuda/activations.cuh"
#include "common/device/cuda/half_images.cuh"
#include "common/device/cuda/map.cuh"

// ---- elements --------------------------------------------------------------------------------

static void cuda_half_narrow(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                             bool accumulate) {
    cuda_narrow_images(precision, of, x, y, accumulate);
}

static void cuda_half_widen(Precision precision, ImageSizes of, const uint16_t *x, float *y,
                            bool accumulate) {
    cuda_widen_images(CudaStored{precision, precision}, of, x, y, accumulate);
}

struct HalfSum {
    template <typename T> __device__ T operator()(T a, T b) const {
        T sum;
        narrow_to(&sum, widened(a) + widened(b));
        return sum;
    }
};

template <typename T>
static void add(uint16_t *y, const uint16_t *a, const uint16_t *b, size_t count) {
    cuda_map(HalfSum{}, count, (T *)y, (const T *)a, (const T *)b);
}

static void cuda_half_add(Precision precision, uint16_t *y, const uint16_t *a, const uint16_t *b,
                          size_t count) {
    BY_PRECISION(precision, add, y, a, b, count);
}

struct SumTo {
    template <typename T> __device__ float operator()(float a, T b) const { return a + widened(b); }
};

template <typename T>
static void add_to(float *y, const float *a, const uint16_t *b, size_t count) {
    cuda_map(SumTo{}, count, y, a, (const T *)b);
}

static void cuda_half_add_to(Precision precision, float *y, const float *a, const uint16_t *b,
                             size_t count) {
    BY_PRECISION(precision, add_to, y, a, b, count);
}

template <typename Formula> struct HalfValue {
    template <typename T> __device__ T operator()(T x) const {
        T y;
        narrow_to(&y, Formula{}(widened(x)));
        return y;
    }
};

template <typename T>
static void activation(Activation f, uint16_t *y, const uint16_t *x, size_t count) {
    with_formula(f, [=](auto formula) {
        cuda_map(HalfValue<decltype(formula)>{}, count, (T *)y, (const T *)x);
    });
}

static void cuda_half_activation(HalfActivation f, uint16_t *y, const uint16_t *x, size_t count) {
    BY_PRECISION(f.precision, activation, f.kind, y, x, count);
}

template <typename Formula> struct HalfGradient {
    template <typename T> __device__ T operator()(T saved, T dy) const {
        T dx;
        narrow_to(&dx, Formula{}.gradient(widened(saved), widened(dy)));
        return dx;
    }
    template <typename T> __device__ T operator()(T before, T saved, T dy) const {
        T dx;
        narrow_to(&dx, widened(before) + Formula{}.gradient(widened(saved), widened(dy)));
        return dx;
    }
};

template <typename T>
static void activation_gradient(Activation f, T *dx, const T *saved, const T *dy, size_t count,
                                bool accumulate) {
    with_formula(f, [=](auto formula) {
        HalfGradient<decltype(formula)> gradient;
        if (accumulate)
            cuda_map(gradient, count, dx, (const T *)dx, saved, dy);
        else
            cuda_map(gradient, count, dx, saved, dy);
    });
}

static void cuda_half_activation_gradient(HalfActivation f, uint16_t *dx, const uint16_t *saved,
                                          const uint16_t *dy, size_t count, bool accumulate) {
    if (f.precision == PRECISION_F16)
        activation_gradient(f.kind, (__half *)dx, (const __half *)saved, (const __half *)dy, count,
                            accumulate);
    else
        activation_gradient(f.kind, (__nv_bfloat16 *)dx, (const __nv_bfloat16 *)saved,
                            (const __nv_bfloat16 *)dy, count, accumulate);
}

// ---- one element of an image from those that it depends on -------------------------------------

// y[i] = operation(place of i) for each of images [n, h, w, c], or that added to it.
template <typename Operation, typename T>
static __global__ void place_kernel(Operation operation, HalfImages of, T *y, bool accumulate) {
    FOR_EACH(i, of.count()) put_half(&y[i], operation(of.place(i)), accumulate);
}

template <typename Operation, typename T>
static void for_each_place(const Operation &operation, const HalfImages &of, T *y,
                           bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    if (of.count() > 0)
        cuda_launch(cuda, place_kernel<Operation, T>, cuda_grid(cuda, of.count()), operation, of, y,
                    accumulate);
}

// ---- shortcut --------------------------------------------------------------------------------

template <typename T> struct TakeShortcut {
    Window v;
    const T *x;
    __device__ float operator()(const HalfPlace &at) const {
        size_t c = at.channel - (v.k - v.c) / 2; // before the first: huge
        HalfPlace from = {at.image, at.row * v.stride, at.column * v.stride, c};
        return c < v.c ? widened(x[half_inputs(v).index(from)]) : 0;
    }
};

template <typename T> static void shortcut(const Window *v, const uint16_t *x, uint16_t *y) {
    for_each_place(TakeShortcut<T>{*v, (const T *)x}, half_outputs(*v), (T *)y, false);
}

static void cuda_half_shortcut(Precision precision, const Window *v, const uint16_t *x,
                               uint16_t *y) {
    BY_PRECISION(precision, shortcut, v, x, y);
}

template <typename T> struct ReturnShortcut {
    Window v;
    const T *dy;
    __device__ float operator()(const HalfPlace &at) const {
        HalfPlace to = {at.image, at.row / v.stride, at.column / v.stride,
                        at.channel + (v.k - v.c) / 2};
        bool taken = at.row % v.stride == 0 && at.column % v.stride == 0 && to.row < v.oh &&
                     to.column < v.ow;
        return taken ? widened(dy[half_outputs(v).index(to)]) : 0;
    }
};

template <typename T>
static void return_shortcut(const Window *v, const uint16_t *dy, uint16_t *dx, bool accumulate) {
    for_each_place(ReturnShortcut<T>{*v, (const T *)dy}, half_inputs(*v), (T *)dx, accumulate);
}

static void cuda_half_shortcut_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                        uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, return_shortcut, v, dy, dx, accumulate);
}

// ---- pooling ---------------------------------------------------------------------------------

template <typename T> struct MaxPool {
    Window v;
    const T *x;
    int32_t *chosen;
    __device__ float operator()(const HalfPlace &at) const {
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        HalfImages in = half_inputs(v);
        size_t best = rows.begin * v.w + cols.begin;
        float largest = widened(x[in.index({at.image, rows.begin, cols.begin, at.channel})]);
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++) {
                float value = widened(x[in.index({at.image, iy, ix, at.channel})]);
                if (!beats(value, largest)) continue;
                best = iy * v.w + ix;
                largest = value;
            }
        chosen[half_outputs(v).index(at)] = (int32_t)best;
        return largest;
    }
};

template <typename T>
static void max_pool(const Window *v, const uint16_t *x, uint16_t *y, int32_t *chosen) {
    CHECK(v->pad < v->kernel, "kernel %zu, pad %zu: a window of padding only", v->kernel, v->pad);
    for_each_place(MaxPool<T>{*v, (const T *)x, chosen}, half_outputs(*v), (T *)y, false);
}

static void cuda_half_max_pool(Precision precision, const Window *v, const uint16_t *x, uint16_t *y,
                               int32_t *chosen) {
    BY_PRECISION(precision, max_pool, v, x, y, chosen);
}

template <typename T> struct MaxPoolGradient {
    Window v;
    const int32_t *chosen;
    const T *dy;
    __device__ float operator()(const HalfPlace &at) const {
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        int32_t pixel = (int32_t)(at.row * v.w + at.column);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t output = half_outputs(v).index({at.image, oy, ox, at.channel});
                if (chosen[output] == pixel) sum += widened(dy[output]);
            }
        return sum;
    }
};

template <typename T>
static void max_pool_gradient(const Window *v, const int32_t *chosen, const uint16_t *dy,
                              uint16_t *dx, bool accumulate) {
    for_each_place(MaxPoolGradient<T>{*v, chosen, (const T *)dy}, half_inputs(*v), (T *)dx,
                   accumulate);
}

static void cuda_half_max_pool_gradient(Precision precision, const Window *v, const int32_t *chosen,
                                        const uint16_t *dy, uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, max_pool_gradient, v, chosen, dy, dx, accumulate);
}

template <typename T> struct AveragePool {
    Window v;
    const T *x;
    __device__ float operator()(const HalfPlace &at) const {
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        float sum = 0;
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++)
                sum += widened(x[half_inputs(v).index({at.image, iy, ix, at.channel})]);
        return sum / (float)(v.kernel * v.kernel);
    }
};

template <typename T> static void avg_pool(const Window *v, const uint16_t *x, uint16_t *y) {
    for_each_place(AveragePool<T>{*v, (const T *)x}, half_outputs(*v), (T *)y, false);
}

static void cuda_half_avg_pool(Precision precision, const Window *v, const uint16_t *x,
                               uint16_t *y) {
    BY_PRECISION(precision, avg_pool, v, x, y);
}

template <typename T> struct AveragePoolGradient {
    Window v;
    const T *dy;
    __device__ float operator()(const HalfPlace &at) const {
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++)
                sum += widened(dy[half_outputs(v).index({at.image, oy, ox, at.channel})]);
        return sum / (float)(v.kernel * v.kernel);
    }
};

template <typename T>
static void avg_pool_gradient(const Window *v, const uint16_t *dy, uint16_t *dx, bool accumulate) {
    for_each_place(AveragePoolGradient<T>{*v, (const T *)dy}, half_inputs(*v), (T *)dx, accumulate);
}

static void cuda_half_avg_pool_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                        uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, avg_pool_gradient, v, dy, dx, accumulate);
}

// ---- upsampling ------------------------------------------------------------------------------

static HalfImages upsampled(const Window &v) {
    return {v.n, 2 * v.h, 2 * v.w, v.c};
}

template <typename T> struct Upsample {
    HalfImages in;
    const T *x;
    __device__ float operator()(const HalfPlace &at) const {
        return widened(x[in.index({at.image, at.row / 2, at.column / 2, at.channel})]);
    }
};

template <typename T> static void upsample(const Window *v, const uint16_t *x, uint16_t *y) {
    for_each_place(Upsample<T>{half_inputs(*v), (const T *)x}, upsampled(*v), (T *)y, false);
}

static void cuda_half_upsample2x(Precision precision, const Window *v, const uint16_t *x,
                                 uint16_t *y) {
    BY_PRECISION(precision, upsample, v, x, y);
}

template <typename T> struct UpsampleGradient {
    HalfImages out;
    const T *dy;
    __device__ float value(const HalfPlace &at, size_t down, size_t right) const {
        return widened(
            dy[out.index({at.image, 2 * at.row + down, 2 * at.column + right, at.channel})]);
    }
    __device__ float operator()(const HalfPlace &at) const {
        return (value(at, 0, 0) + value(at, 0, 1)) + (value(at, 1, 0) + value(at, 1, 1));
    }
};

template <typename T>
static void upsample_gradient(const Window *v, const uint16_t *dy, uint16_t *dx, bool accumulate) {
    for_each_place(UpsampleGradient<T>{upsampled(*v), (const T *)dy}, half_inputs(*v), (T *)dx,
                   accumulate);
}

static void cuda_half_upsample2x_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                          uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, upsample_gradient, v, dy, dx, accumulate);
}

extern "C" const HalfKernels cuda_halves = {
    .narrow = cuda_half_narrow,
    .widen = cuda_half_widen,
    .add = cuda_half_add,
    .add_to = cuda_half_add_to,
    .activation = cuda_half_activation,
    .activation_gradient = cuda_half_activation_gradient,
    .attention = cuda_half_attention,
    .attention_gradient = cuda_half_attention_gradient,
    .narrow_linear = cuda_half_narrow_linear,
    .linear_workspace = cuda_half_linear_workspace,
    .linear = cuda_half_linear,
    .linear_weight_gradient = cuda_half_linear_weight_gradient,
    .linear_input_gradient = cuda_half_linear_input_gradient,
    .conv2d_workspace = cuda_half_conv2d_workspace,
    .conv2d = cuda_half_conv2d,
    .conv2d_input_gradient = cuda_half_conv2d_input_gradient,
    .conv2d_weight_gradient = cuda_half_conv2d_weight_gradient,
    .conv2d_bias_gradient = cuda_half_conv2d_bias_gradient,
    .shortcut = cuda_half_shortcut,
    .shortcut_gradient = cuda_half_shortcut_gradient,
    .max_pool = cuda_half_max_pool,
    .max_pool_gradient = cuda_half_max_pool_gradient,
    .avg_pool = cuda_half_avg_pool,
    .avg_pool_gradient = cuda_half_avg_pool_gradient,
    .upsample2x = cuda_half_upsample2x,
    .upsample2x_gradient = cuda_half_upsample2x_gradient,
    .batch_norm = cuda_half_batch_norm,
    .batch_norm_eval = cuda_half_batch_norm_eval,
    .batch_norm_gradient = cuda_half_batch_norm_gradient,
    .batch_norm_statistics = cuda_half_batch_norm_statistics,
    .batch_norm_apply = cuda_half_batch_norm_apply,
    .batch_norm_gradient_sums = cuda_half_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = cuda_half_batch_norm_gradient_apply,
};
