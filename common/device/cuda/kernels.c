/* kernels.c: the CUDA backend's families of kernels, put together. */
#include "common/device/cuda/kernels.h"

#include "common/device/device_backend.h"

const Kernels kernels_cuda = {
    .name = "cuda",
    .is_cpu = false,
    .is_synchronous = false,
    .is_addressable = false,
    .describe = cuda_describe,
    .prepare = cuda_prepare,
    .elementwise = &cuda_elementwise,
    .slices = &cuda_slices,
    .matrix = &cuda_matrix,
    .convolution = &cuda_convolution,
    .norm = &cuda_norm,
    .loss = &cuda_loss,
    .pixels = &cuda_pixels,
    .transformer = &cuda_transformer,
    .halves = &cuda_halves,
    .optimizer = &cuda_optimizer,
};
