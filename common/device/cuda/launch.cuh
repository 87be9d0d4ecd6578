/* launch.cuh: launching a kernel on the current device's compute stream, and the few things
 * that all kernels share. Included by the .cu files only.
 *
 * House rules for kernels, which keep them readable and their results repeatable:
 *  - element by element work is a grid-stride loop (FOR_EACH) over as many threads as fill the card
 *    (cuda_grid), for any count: 0, 1 and 2^33 work;
 *  - no atomics on floating point: a reduction adds in a fixed order, block by block into the
 *    workspace, then one block over the blocks' sums;
 *  - statically sized shared memory, threads in blocks of CUDA_BLOCK (attention/mma.cu: 128), and
 *    no cooperative groups.
 */
#ifndef COMMON_DEVICE_CUDA_LAUNCH_CUH
#define COMMON_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

extern "C" { // the project's headers are C
#include "common/base/error.h"
#include "common/device/cuda/device.h"
}

enum { CUDA_BLOCK = 256, CUDA_WARP = 32 };

// for (size_t i = this thread's first element; ...): every i in [0, count) once, over the grid.
#define FOR_EACH(i, count)                                                      \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); \
         i += (size_t)gridDim.x * blockDim.x)

// Blocks for FOR_EACH over count elements: no more than fill the card.
static inline unsigned cuda_grid(const CudaDevice *cuda, size_t count) {
    size_t needed = (count + CUDA_BLOCK - 1) / CUDA_BLOCK, most = (size_t)cuda->processors * 8;
    return (unsigned)(needed < 1 ? 1 : needed < most ? needed : most);
}

struct CudaBlocks {
    dim3 grid;
    unsigned threads; // of a block
};

// kernel<<<grid, threads, 0, stream>>>(arguments...), checked. An error is reported with the types
// of the parameters: a body's has the name of the function that launches it.
template <typename... Parameters, typename... Arguments>
static inline void cuda_launch_blocks_on(cudaStream_t stream, void (*kernel)(Parameters...),
                                         CudaBlocks blocks, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks.grid;
    config.blockDim = dim3(blocks.threads);
    config.stream = stream;
    cuda_check(cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...), __PRETTY_FUNCTION__,
               __FILE__, __LINE__);
}

// The same with blocks of CUDA_BLOCK threads.
template <typename... Parameters, typename... Arguments>
static inline void cuda_launch_on(cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid,
                                  Arguments... arguments) {
    cuda_launch_blocks_on(stream, kernel, {grid, CUDA_BLOCK}, arguments...);
}

// The same on the compute stream, where all but the averages of collectives belong.
template <typename... Parameters, typename... Arguments>
static inline void cuda_launch(const CudaDevice *cuda, void (*kernel)(Parameters...), dim3 grid,
                               Arguments... arguments) {
    cuda_launch_on(cuda->compute, kernel, grid, arguments...);
}
template <typename... Parameters, typename... Arguments>
static inline void cuda_launch_blocks(const CudaDevice *cuda, void (*kernel)(Parameters...),
                                      CudaBlocks blocks, Arguments... arguments) {
    cuda_launch_blocks_on(cuda->compute, kernel, blocks, arguments...);
}

template <typename Body> static __global__ void body_kernel(Body body) {
    body();
}

// Runs body(), a __device__ lambda, as a kernel of so many blocks.
template <typename Body> static void cuda_run_blocks(dim3 blocks, const Body &body) {
    cuda_launch(cuda_current(), body_kernel<Body>, blocks, body);
}

// The same, with as many blocks as a loop FOR_EACH over count elements needs.
template <typename Body> static void cuda_run(size_t count, const Body &body) {
    if (count > 0) cuda_run_blocks(cuda_grid(cuda_current(), count), body);
}

// Stores a gradient, or adds it to the gradients of other uses of the tensor.
static inline __device__ void put(float *place, float value, bool accumulate) {
    *place = accumulate ? *place + value : value;
}
static inline __device__ void put(float *place, double value, bool accumulate) {
    put(place, (float)value, accumulate);
}

// A sum over the divisor; an empty batch has no mean, and a loss of 0.
static inline __device__ double quotient(double sum, double divisor) {
    return divisor > 0 ? sum / divisor : 0;
}

#endif
