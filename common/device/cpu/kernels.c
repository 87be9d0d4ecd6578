/* kernels.c: the CPU backend's table of kernels, one entry for each family. */
#include "common/device/cpu/kernels.h"

#include "common/device/device_backend.h"

const Kernels kernels_cpu = {
    .name = "cpu",
    .is_cpu = true,
    .is_synchronous = true,
    .is_addressable = true,
    .describe = cpu_describe,
    .prepare = cpu_prepare,
    .use_threads = cpu_use_threads,
    .elementwise = &cpu_elementwise,
    .slices = &cpu_slices,
    .matrix = &cpu_matrix,
    .convolution = &cpu_convolution,
    .norm = &cpu_norm,
    .loss = &cpu_loss,
    .pixels = &cpu_pixels,
    .transformer = &cpu_transformer,
    .optimizer = &cpu_optimizer,
};
