/* activations.cuh: the formulas of the activations for one element. A formula is a struct:
 * operator()(x) is f(x), gradient(saved, dy) is dy f'(x), where saved is x (relu: x or y). A GPU
 * recomputes tanh faster than it stores the derivative.
 *
 * elementwise.cu maps them over float32, half.cu over numbers of 16 bits.
 */
#ifndef COMMON_DEVICE_CUDA_ACTIVATIONS_CUH
#define COMMON_DEVICE_CUDA_ACTIVATIONS_CUH

#include <math.h>

#include "common/device/cuda/launch.cuh"

#define ROOT 0.7978845608028654f // sqrt(2 / pi)
#define CUBE 0.044715f

struct Relu {
    __device__ float operator()(float x) const { return x < 0 ? 0 : x; } // a NaN is not < 0
    __device__ float gradient(float y, float dy) const { return y > 0 ? dy : 0; }
};

struct Gelu {
    __device__ float operator()(float x) const {
        return x / 2 * (1 + tanhf(ROOT * (x + CUBE * x * x * x)));
    }
    __device__ float gradient(float x, float dy) const {
        float t = tanhf(ROOT * (x + CUBE * x * x * x));
        float slope = (1 + t) / 2 + x / 2 * ((1 - t) * (1 + t)) * ROOT * (1 + 3 * CUBE * x * x);
        return dy * slope;
    }
};

// Calls run(formula) with the formula of an activation.
template <typename Run> static void with_formula(Activation f, Run run) {
    switch (f) {
    case ACTIVATION_RELU:
        return run(Relu{});
    case ACTIVATION_GELU:
        return run(Gelu{});
    case ACTIVATIONS:
        break; // a count, no activation
    }
}

#endif
