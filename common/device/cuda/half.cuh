/* half.cuh: how tensors are stored: float, or one of the two 16-bit types. Kernels compute in float
 * and round to the nearest even on storing.
 */
#ifndef COMMON_DEVICE_CUDA_HALF_CUH
#define COMMON_DEVICE_CUDA_HALF_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/device/cuda/launch.cuh"

static inline __device__ float widened(float x) {
    return x;
}
static inline __device__ float widened(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static inline __device__ float widened(__half x) {
    return __half2float(x);
}

static inline __device__ void narrow_to(float *y, float x) {
    *y = x;
}
static inline __device__ void narrow_to(__nv_bfloat16 *y, float x) {
    *y = __float2bfloat16_rn(x);
}
static inline __device__ void narrow_to(__half *y, float x) {
    *y = __float2half_rn(x);
}

template <typename T> static __device__ T narrowed(float x) {
    T y;
    narrow_to(&y, x);
    return y;
}

static inline __device__ float rounded(Precision precision, float x) {
    return precision == PRECISION_BF16  ? __bfloat162float(__float2bfloat16_rn(x))
           : precision == PRECISION_F16 ? __half2float(__float2half_rn(x))
                                        : x;
}

// Stores a value, or adds it to the stored one; rounds once, after the addition.
template <typename T> static inline __device__ void put_half(T *place, float value, bool add) {
    narrow_to(place, add ? widened(*place) + value : value);
}

// How kernels.h declares a tensor of type T.
template <typename T> using Stored = std::conditional_t<std::is_same_v<T, float>, float, uint16_t>;

// function<T>(arguments...) for the type T of `precision`, which is not PRECISION_F32.
#define BY_PRECISION(precision, function, ...)                    \
    ((precision) == PRECISION_F16 ? function<__half>(__VA_ARGS__) \
                                  : function<__nv_bfloat16>(__VA_ARGS__))

#endif
