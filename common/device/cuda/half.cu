/* half.cu: tensors in 16 bits, images with the channels last: elements and windows, and the table
 * of all kernels in 16 bits (linear: blas.c, attention: attention/choice.cu, losses: loss.cu,
 * convolution: conv.cu, batch norm: norm.cu, layer norm: layer_norm.cu). One thread computes one
 * element, in float32, and rounds it; neighbouring threads have neighbouring channels of the same
 * pixel, which are adjacent in memory.
 */
#include "common/device/cuda/activations.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/window.cuh"

// ---- elements --------------------------------------------------------------------------------

static void cuda_half_widen(Precision precision, ImageSizes of, const uint16_t *x, float *y,
                            bool accumulate) {
    cuda_widen_images(CudaStored{precision, precision}, of, x, y, accumulate);
}

template <typename T>
static void add(uint16_t *y, const uint16_t *a, const uint16_t *b, size_t count) {
    auto sum = [] __device__(T p, T q) { return narrowed<T>(widened(p) + widened(q)); };
    cuda_map(sum, count, (T *)y, (const T *)a, (const T *)b);
}

static void cuda_half_add(Precision precision, uint16_t *y, const uint16_t *a, const uint16_t *b,
                          size_t count) {
    BY_PRECISION(precision, add, y, a, b, count);
}

template <typename T>
static void add_to(float *y, const float *a, const uint16_t *b, size_t count) {
    auto sum = [] __device__(float p, T q) { return p + widened(q); };
    cuda_map(sum, count, y, a, (const T *)b);
}

static void cuda_half_add_to(Precision precision, float *y, const float *a, const uint16_t *b,
                             size_t count) {
    BY_PRECISION(precision, add_to, y, a, b, count);
}

// An activation's formula, of and to 16 bits.
template <typename Formula, typename T> struct Rounding {
    __device__ T operator()(T x) const { return narrowed<T>(Formula{}(widened(x))); }
    __device__ T operator()(T saved, T dy) const {
        return narrowed<T>(Formula{}.gradient(widened(saved), widened(dy)));
    }
    __device__ T operator()(T before, T saved, T dy) const {
        return narrowed<T>(widened(before) + Formula{}.gradient(widened(saved), widened(dy)));
    }
};

template <typename T>
static void activation(Activation f, uint16_t *y, const uint16_t *x, size_t count) {
    with_formula(f, [=](auto formula) {
        cuda_map(Rounding<decltype(formula), T>{}, count, (T *)y, (const T *)x);
    });
}

static void cuda_half_activation(HalfActivation f, uint16_t *y, const uint16_t *x, size_t count) {
    BY_PRECISION(f.precision, activation, f.kind, y, x, count);
}

template <typename T>
static void activation_gradient(Activation f, uint16_t *dx, const uint16_t *saved,
                                const uint16_t *dy, size_t count, bool accumulate) {
    with_formula(f, [=](auto formula) {
        const Rounding<decltype(formula), T> gradient = {};
        if (accumulate)
            cuda_map(gradient, count, (T *)dx, (const T *)dx, (const T *)saved, (const T *)dy);
        else
            cuda_map(gradient, count, (T *)dx, (const T *)saved, (const T *)dy);
    });
}

static void cuda_half_activation_gradient(HalfActivation f, uint16_t *dx, const uint16_t *saved,
                                          const uint16_t *dy, size_t count, bool accumulate) {
    BY_PRECISION(f.precision, activation_gradient, f.kind, dx, saved, dy, count, accumulate);
}

// ---- windows (window.cuh) ----------------------------------------------------------------------

static void cuda_half_shortcut(Precision precision, const Window *v, const uint16_t *x,
                               uint16_t *y) {
    BY_PRECISION(precision, shortcut, v, x, y);
}

static void cuda_half_shortcut_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                        uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, shortcut_gradient, v, dy, dx, accumulate);
}

static void cuda_half_max_pool(Precision precision, const Window *v, const uint16_t *x, uint16_t *y,
                               int32_t *chosen) {
    BY_PRECISION(precision, max_pool, v, x, y, chosen);
}

static void cuda_half_max_pool_gradient(Precision precision, const Window *v, const int32_t *chosen,
                                        const uint16_t *dy, uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, max_pool_gradient, v, chosen, dy, dx, accumulate);
}

static void cuda_half_avg_pool(Precision precision, const Window *v, const uint16_t *x,
                               uint16_t *y) {
    BY_PRECISION(precision, avg_pool, v, x, y);
}

static void cuda_half_avg_pool_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                        uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, avg_pool_gradient, v, dy, dx, accumulate);
}

static void cuda_half_upsample2x(Precision precision, const Window *v, const uint16_t *x,
                                 uint16_t *y) {
    BY_PRECISION(precision, upsample2x, v->n, v->c, v->h, v->w, x, y);
}

template <typename T>
static void upsample2x_gradient(const Window *v, const uint16_t *dy, uint16_t *dx,
                                bool accumulate) {
    const T *from = (const T *)dy;
    const Images<T> in = inputs_of<T>(*v), out = {v->n, v->c, 2 * v->h, 2 * v->w};
    for_each_place(in, dx, accumulate, [=] __device__(const Place &at) {
        auto dy_at = [&](size_t down, size_t right) {
            return widened(from[out.index(at, 2 * at.row + down, 2 * at.column + right)]);
        };
        return (dy_at(0, 0) + dy_at(0, 1)) + (dy_at(1, 0) + dy_at(1, 1));
    });
}

static void cuda_half_upsample2x_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                          uint16_t *dx, bool accumulate) {
    BY_PRECISION(precision, upsample2x_gradient, v, dy, dx, accumulate);
}

extern "C" const HalfKernels cuda_halves = {
    .narrow = cuda_narrow_images,
    .widen = cuda_half_widen,
    .narrow_rows = cuda_half_narrow_rows,
    .widen_rows = cuda_half_widen_rows,
    .add = cuda_half_add,
    .add_to = cuda_half_add_to,
    .activation = cuda_half_activation,
    .activation_gradient = cuda_half_activation_gradient,
    .layer_norm = cuda_half_layer_norm,
    .layer_norm_gradient = cuda_half_layer_norm_gradient,
    .attention = cuda_half_attention,
    .attention_gradient = cuda_half_attention_gradient,
    .attention_difference = cuda_attention_difference,
    .set_attention_difference = cuda_set_attention_difference,
    .narrow_linear = cuda_half_narrow_linear,
    .linear_workspace = cuda_half_linear_workspace,
    .linear = cuda_half_linear,
    .linear_weight_gradient = cuda_half_linear_weight_gradient,
    .linear_input_gradient = cuda_half_linear_input_gradient,
    .linear_gelu = cuda_half_linear_gelu,
    .linear_gelu_gradient = cuda_half_linear_gelu_gradient,
    .cross_entropy = cuda_half_cross_entropy,
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
