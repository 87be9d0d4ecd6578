/* half.cuh: conversion between float and 16 bits in kernels. Rounds to nearest, ties to even.
 */
#ifndef COMMON_DEVICE_CUDA_HALF_CUH
#define COMMON_DEVICE_CUDA_HALF_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

static inline __device__ float rounded(Precision precision, float x) {
    return precision == PRECISION_BF16  ? __bfloat162float(__float2bfloat16_rn(x))
           : precision == PRECISION_F16 ? __half2float(__float2half_rn(x))
                                        : x;
}

#endif
