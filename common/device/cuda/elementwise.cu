/* elementwise.cu: the CUDA backend's kernels that go element by element.
 *
 * All of these are bound by memory: each passes over its arrays once, four elements per access
 * (map.cuh).
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/device/cuda/activations.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- vectors --------------------------------------------------------------------------------

struct Constant {
    float value;
    __device__ float operator()() const { return value; }
};

static void cuda_fill(float *y, float value, size_t count) {
    cuda_map(Constant{value}, count, y);
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

static void cuda_add(float *y, const float *a, const float *b, size_t count) {
    cuda_map(Sum{}, count, y, a, b);
}

static void cuda_accumulate(float *y, const float *x, size_t count) {
    cuda_map(Sum{}, count, y, y, x);
}

struct Product {
    float factor;
    __device__ float operator()(float x) const { return x * factor; }
};

static void cuda_scale(float *y, float factor, size_t count) {
    cuda_map(Product{factor}, count, y, y);
}

static __global__ void mean_kernel(const float *x, size_t count, GridSum room, Mean mean) {
    double own = 0;
    FOR_EACH(i, count) own += x[i];
    grid_sum(own, room, mean);
}

static void cuda_mean(const float *x, double divisor, float *y, size_t count) {
    CudaDevice *cuda = cuda_current();
    GridSum room = grid_sum_room(cuda, count, 16 * CUDA_BLOCK);
    cuda_launch(cuda, mean_kernel, room.blocks, x, count, room, Mean{divisor, y});
}

static __global__ void spread_kernel(float *y, const float *x, double divisor, bool accumulate,
                                     size_t count) {
    float value = (float)quotient(*x, divisor);
    FOR_EACH(i, count) y[i] = accumulate ? y[i] + value : value;
}

static void cuda_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    CudaDevice *cuda = cuda_current();
    if (count)
        cuda_launch(cuda, spread_kernel, cuda_grid(cuda, count), y, x, divisor, accumulate, count);
}

static __global__ void count_up_kernel(int64_t *counter) {
    if (threadIdx.x == 0) *counter += 1;
}

static void cuda_count_up(int64_t *counter) {
    cuda_launch(cuda_current(), count_up_kernel, 1, counter);
}

// ---- 16 bits --------------------------------------------------------------------------------

struct ToBfloat16 {
    __device__ uint16_t operator()(float x) const {
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
};

struct ToHalf {
    __device__ uint16_t operator()(float x) const { return __half_as_ushort(__float2half_rn(x)); }
};

struct FromBfloat16 {
    __device__ float operator()(uint16_t x) const {
        return __bfloat162float(__ushort_as_bfloat16(x));
    }
};

struct FromHalf {
    __device__ float operator()(uint16_t x) const { return __half2float(__ushort_as_half(x)); }
};

static void cuda_narrow(Precision precision, uint16_t *y, const float *x, size_t count) {
    if (precision == PRECISION_F16)
        cuda_map(ToHalf{}, count, y, x);
    else
        cuda_map(ToBfloat16{}, count, y, x);
}

static void cuda_widen(Precision precision, float *y, const uint16_t *x, size_t count) {
    if (precision == PRECISION_F16)
        cuda_map(FromHalf{}, count, y, x);
    else
        cuda_map(FromBfloat16{}, count, y, x);
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
