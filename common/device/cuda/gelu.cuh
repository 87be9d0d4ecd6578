/* gelu.cuh: GELU and its gradient for one element, of float32 (transformer.cu) and between numbers
 * of 16 bits (half.cu).
 */
#ifndef COMMON_DEVICE_CUDA_GELU_CUH
#define COMMON_DEVICE_CUDA_GELU_CUH

#include <math.h>

#include "common/device/cuda/launch.cuh"

#define ROOT 0.7978845608028654f // sqrt(2 / pi)
#define CUBE 0.044715f

struct Gelu {
    __device__ float operator()(float x) const {
        return x / 2 * (1 + tanhf(ROOT * (x + CUBE * x * x * x)));
    }
};

struct GeluGradient {
    __device__ float operator()(float x, float dy) const {
        float t = tanhf(ROOT * (x + CUBE * x * x * x));
        float slope = (1 + t) / 2 + x / 2 * ((1 - t) * (1 + t)) * ROOT * (1 + 3 * CUBE * x * x);
        return dy * slope;
    }
};

#endif
