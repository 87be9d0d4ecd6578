/* reduce.cuh: sums and maxima over the threads of a warp and of a block.
 *
 * All threads of the warp or block must call them together, and all get the result. The order of
 * the additions is fixed: it depends on the place of a value, never on time. So a result is the
 * same in every run, and on every card.
 *
 * A sum over more than a block has two stages: every block writes its sum to the workspace, and
 * then one block adds these up, in the order of the blocks' numbers. That is the block that ends
 * last, whichever it is (grid_sum), or one of a second kernel (block_sum_of). How many blocks there
 * are is a function of the count alone (reduce_grid), so that it is the same on every card.
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

// ---- within a thread ----------------------------------------------------------------------------

// The sum of a thread's own numbers: a float, and the sum of its rounding errors, each of which is
// an exact float (Knuth's TwoSum). Nearly as accurate as a double, by 7 float instructions a
// number: consumer cards have 1/64 as many double units as float ones.
struct LaneSum {
    float sum, errors;
    __device__ void add(float x) {
        float next = __fadd_rn(sum, x), of_x = __fsub_rn(next, sum);
        errors += __fsub_rn(sum, __fsub_rn(next, of_x)) + __fsub_rn(x, of_x);
        sum = next;
    }
    __device__ void add_square(float x) { // exactly: the product's rounding error is a float, too
        float square = __fmul_rn(x, x);
        errors += __fmaf_rn(x, x, -square);
        add(square);
    }
    __device__ double value() const { return isfinite(errors) ? (double)sum + errors : sum; }
};

// ---- within a warp and a block ------------------------------------------------------------------

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

// How many threads of the block before this one, and *total in all, have `flag` set. A barrier must
// separate two calls.
static inline __device__ unsigned flags_before(bool flag, unsigned *total) {
    __shared__ unsigned of_warp[CUDA_BLOCK / CUDA_WARP];
    unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    unsigned lanes = __ballot_sync(0xffffffff, flag), before = 0, all = 0;
    if (lane == 0) of_warp[warp] = __popc(lanes);
    __syncthreads();
    for (unsigned i = 0; i < CUDA_BLOCK / CUDA_WARP; i++) {
        before += i < warp ? of_warp[i] : 0;
        all += of_warp[i];
    }
    *total = all;
    return before + __popc(lanes & ((1u << lane) - 1));
}

// The sum of values[count], device memory, by one block. (Volatile: other blocks may have written
// them while this one was running, and it must not look for them in its own cache.)
template <typename T> static __device__ T block_sum_of(const volatile T *values, size_t count) {
    T sum = 0;
    for (size_t i = threadIdx.x; i < count; i += CUDA_BLOCK) sum += values[i];
    return block_sum(sum);
}

// Blocks for the first stage over count items, of which a block takes `each` at least.
static inline unsigned reduce_grid(size_t count, size_t each) {
    size_t needed = (count + each - 1) / each, most = REDUCE_BLOCKS;
    return (unsigned)(needed < 1 ? 1 : needed < most ? needed : most);
}

// ---- both stages in one launch --------------------------------------------------------------

typedef struct GridSum {
    unsigned blocks;
    double *sums;      // [sums, blocks], workspace
    unsigned *arrived; // [1], device memory: how many blocks have written their sums; CudaDevice's
} GridSum;

// Workspace for a kernel that computes `sums` sums over count items, of which a block takes at
// least `each`.
static inline GridSum grid_sum_room(CudaDevice *cuda, size_t count, size_t each, size_t sums) {
    unsigned blocks = reduce_grid(count, each);
    return {blocks, (double *)cuda_workspace(cuda, sums * blocks * sizeof(double)), cuda->arrived};
}

// Returns whether this block is the last of `count` blocks that call this with the counter. Its
// threads then read the other blocks' writes before their calls (through volatile, past its own
// cache). The counter is 0 before and after the kernel.
static inline __device__ bool arrives_last(unsigned *arrived, unsigned count) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); // after the barrier: it releases the writes of all threads of the block
        is_last = atomicAdd(arrived, 1u) == count - 1;
        if (is_last) *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// All threads of all blocks bring COUNT numbers; one thread of the grid calls finish(their sums).
// Once per kernel, as its end.
template <int COUNT, typename Finish>
static __device__ void grid_sums(double *own, const GridSum &room, const Finish &finish) {
    for (int k = 0; k < COUNT; k++) own[k] = block_sum(own[k]);
    for (int k = 0; threadIdx.x == 0 && k < COUNT; k++)
        room.sums[k * gridDim.x + blockIdx.x] = own[k];
    if (!arrives_last(room.arrived, gridDim.x)) return;
    for (int k = 0; k < COUNT; k++) own[k] = block_sum_of(room.sums + k * gridDim.x, gridDim.x);
    if (threadIdx.x == 0) finish(own);
}

template <typename Finish>
static __device__ void grid_sum(double own, const GridSum &room, const Finish &finish) {
    grid_sums<1>(&own, room, [&](const double *all) { finish(all[0]); });
}

template <typename Own, typename Finish>
static __global__ void sum_kernel(Own own, GridSum room, Finish finish) {
    grid_sum(own(), room, finish);
}

// finish(the sum of all threads' own()), a kernel. own is a __device__ lambda with a loop FOR_EACH
// over count elements.
template <typename Own, typename Finish>
static void cuda_sum(size_t count, const Finish &finish, const Own &own) {
    CudaDevice *cuda = cuda_current();
    GridSum room = grid_sum_room(cuda, count, 16 * CUDA_BLOCK, 1);
    cuda_launch(cuda, sum_kernel<Own, Finish>, room.blocks, own, room, finish);
}

struct Mean { // turns a loss's sum into the mean
    double divisor;
    float *y; // [1]
    __device__ void operator()(double sum) const { *y = (float)quotient(sum, divisor); }
};

#endif
