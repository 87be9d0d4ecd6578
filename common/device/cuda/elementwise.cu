/* elementwise.cu: the CUDA backend's kernels that go element by element.
 *
 * All of these are bound by memory: each passes over its arrays once, four elements per access
 * (map.cuh).
 */
#include "common/device/cuda/activations.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- vectors --------------------------------------------------------------------------------

static void cuda_fill(float *y, float value, size_t count) {
    cuda_map([=] __device__() { return value; }, count, y);
}

static void cuda_add(float *y, const float *a, const float *b, size_t count) {
    cuda_map([] __device__(float p, float q) { return p + q; }, count, y, a, b);
}

static void cuda_accumulate(float *y, const float *x, size_t count) {
    cuda_add(y, y, x, count);
}

static void cuda_scale(float *y, float factor, size_t count) {
    cuda_map([=] __device__(float x) { return x * factor; }, count, y, y);
}

static void cuda_mean(const float *x, double divisor, float *y, size_t count) {
    cuda_sum(count, Mean{divisor, y}, [=] __device__() {
        double own = 0;
        FOR_EACH(i, count) own += x[i];
        return own;
    });
}

static void cuda_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    cuda_run(count, [=] __device__() {
        float value = (float)quotient(*x, divisor);
        FOR_EACH(i, count) put(&y[i], value, accumulate);
    });
}

static void cuda_count_up(int64_t *counter) {
    cuda_run(1, [=] __device__() { FOR_EACH(i, 1) counter[i] += 1; });
}

static void cuda_narrow(Precision precision, uint16_t *y, const float *x, size_t count) {
    cuda_narrow_images(precision, ImageSizes{count, 1, 1}, x, y, false);
}

static void cuda_widen(Precision precision, float *y, const uint16_t *x, size_t count) {
    cuda_widen_images(CudaStored{precision, PRECISION_F32}, ImageSizes{count, 1, 1}, x, y, false);
}

// ---- activations ----------------------------------------------------------------------------

template <typename Formula> struct Gradient {
    __device__ float operator()(float saved, float dy) const {
        return Formula{}.gradient(saved, dy);
    }
};

static void cuda_activation(Activation f, float *y, float *x, size_t count, bool save) {
    (void)save; // x itself
    with_formula(f, [=](auto formula) { cuda_map(formula, count, y, (const float *)x); });
}

static void cuda_activation_gradient(Activation f, float *dx, const float *saved, const float *dy,
                                     size_t count, bool accumulate) {
    with_formula(f, [=](auto formula) {
        using Of = Gradient<decltype(formula)>;
        if (accumulate)
            cuda_map(Added<Of>{}, count, dx, dx, saved, dy);
        else
            cuda_map(Of{}, count, dx, saved, dy);
    });
}

extern "C" const ElementwiseKernels cuda_elementwise = {
    .fill = cuda_fill,
    .add = cuda_add,
    .accumulate = cuda_accumulate,
    .scale = cuda_scale,
    .activation = cuda_activation,
    .activation_gradient = cuda_activation_gradient,
    .narrow = cuda_narrow,
    .widen = cuda_widen,
    .mean = cuda_mean,
    .spread = cuda_spread,
    .count_up = cuda_count_up,
};
