/* reduce.cuh: sums and maxima over the threads of a warp and of a block, for kernels_cuda*.cu.
 *
 * All threads of the warp or block must call them together, and all get the result. The order of
 * the additions is fixed: it depends on the place of a value, never on time. So a result is the
 * same in every run, and on every card.
 *
 * A sum over more than a block has two stages: every block of the first kernel writes its sum to
 * the workspace, and one block of a second kernel adds these up with block_sum_of. How many blocks
 * that are is a function of the count alone (reduce_grid), so that it is the same on every card.
 */
#ifndef COMMON_DEVICE_CUDA_REDUCE_CUH
#define COMMON_DEVICE_CUDA_REDUCE_CUH

#include "common/device/cuda/launch.cuh"

enum { REDUCE_BLOCKS = 1024 };

struct Plus {
    template <typename T> static __device__ T of(T a, T b) { return a + b; }
};

struct Larger { // a NaN loses against a number
    template <typename T> static __device__ T of(T a, T b) { return a > b || b != b ? a : b; }
};

// A butterfly: after the step with distance d, groups of 2 d threads agree.
template <typename Operation, typename T> static __device__ T warp_reduce(T value) {
    for (int distance = CUDA_WARP / 2; distance > 0; distance /= 2)
        value = Operation::of(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

template <typename Operation, typename T> static __device__ T block_reduce(T value) {
    __shared__ T of_warp[CUDA_BLOCK / CUDA_WARP];
    value = warp_reduce<Operation>(value);
    __syncthreads(); // the room may still be read, from the call before
    if (threadIdx.x % CUDA_WARP == 0) of_warp[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    value = of_warp[0];
    for (int i = 1; i < CUDA_BLOCK / CUDA_WARP; i++) value = Operation::of(value, of_warp[i]);
    return value;
}

template <typename T> static __device__ T warp_sum(T value) {
    return warp_reduce<Plus>(value);
}

template <typename T> static __device__ T warp_max(T value) {
    return warp_reduce<Larger>(value);
}

template <typename T> static __device__ T block_sum(T value) {
    return block_reduce<Plus>(value);
}

template <typename T> static __device__ T block_max(T value) {
    return block_reduce<Larger>(value);
}

// The sum of values[count], device memory, by one block.
template <typename T> static __device__ T block_sum_of(const T *values, size_t count) {
    T sum = 0;
    for (size_t i = threadIdx.x; i < count; i += CUDA_BLOCK) sum += values[i];
    return block_sum(sum);
}

// Blocks for the first stage over count items, of which a block takes `each` at least.
static inline unsigned reduce_grid(size_t count, size_t each) {
    size_t needed = (count + each - 1) / each, most = REDUCE_BLOCKS;
    return (unsigned)(needed < 1 ? 1 : needed < most ? needed : most);
}

#endif
