/* cuda_runtime.h of the CUDA emulator: CUDA C++ as far as the project's kernels use it, for an
 * ordinary C++17 compiler. A kernel is a plain function, and a thread of it is one call of that
 * function; what identifies a thread (threadIdx, blockIdx, their sizes) lies in thread-local
 * variables, and what threads do together (barriers, shuffles) is ../kernel.cpp.
 *
 * A kernel is launched by cudaLaunchKernelEx, since kernel<<<...>>> is not C++. There is no
 * atomicAdd on floating point (deleted below): its result would depend on the order of the threads.
 */
#ifndef CUDA_EMULATOR_RUNTIME_H
#define CUDA_EMULATOR_RUNTIME_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// A host thread runs one block at a time, so variables shared by the block's threads can be
// thread-local.
#define __shared__ static thread_local

// ---- vectors -----------------------------------------------------------------------------------

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(4) uchar4 {
    unsigned char x, y, z, w;
};
struct alignas(4) ushort2 {
    unsigned short x, y;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};

inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float3 make_float3(float x, float y, float z) {
    return {x, y, z};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline double2 make_double2(double x, double y) {
    return {x, y};
}
inline int2 make_int2(int x, int y) {
    return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
inline ushort2 make_ushort2(unsigned short x, unsigned short y) {
    return {x, y};
}
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z,
                            unsigned short w) {
    return {x, y, z, w};
}

// ---- indices of a thread -----------------------------------------------------------------------

extern __thread uint3 threadIdx, blockIdx;
extern __thread uint3 blockDim, gridDim;
constexpr int warpSize = 32;

// ---- barriers and exchanges --------------------------------------------------------------------

namespace emulator {

enum class Vote { none, all, any, count }; // of a barrier: over all threads' predicates

// Waits for all threads of the block.
int barrier(Vote vote, int predicate);
// Waits for the lanes of the mask, which must all call it, and returns to each the value of its
// source lane.
uint64_t warp_exchange(unsigned mask, uint64_t value, unsigned source);
unsigned warp_ballot(unsigned mask, bool predicate);
void warp_sync(unsigned mask);
// The copies that this thread has started and not yet waited for, in order.
struct LateCopy {
    void *to;
    const void *from; // NULL: zeros
    size_t bytes;
};
void copy_later(const LateCopy &copy);
bool copy_next(LateCopy *copy); // false: there is none
// Whether tensor cores have the documented layout (DDPC_EMULATED_TENSOR_CORES).
bool tensor_cores_are_sound();
// The lane that a shuffle in segments of `width` lanes reads: lane plus or minus delta, or the lane
// itself if that is outside of the segment.
enum class Shuffle { index, up, down, exclusive_or };
unsigned warp_source(Shuffle shuffle, unsigned argument, int width);

template <typename T>
T warp_shuffle(Shuffle shuffle, unsigned mask, T value, unsigned argument, int width) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "CUDA shuffles numbers only");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = warp_exchange(mask, bits, warp_source(shuffle, argument, width));
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace emulator

inline void __syncthreads() {
    emulator::barrier(emulator::Vote::none, 0);
}
inline int __syncthreads_and(int p) {
    return emulator::barrier(emulator::Vote::all, p);
}
inline int __syncthreads_or(int p) {
    return emulator::barrier(emulator::Vote::any, p);
}
inline int __syncthreads_count(int p) {
    return emulator::barrier(emulator::Vote::count, p);
}
inline void __syncwarp(unsigned mask = 0xffffffff) {
    emulator::warp_sync(mask);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return emulator::warp_ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}

template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
    return emulator::warp_shuffle(emulator::Shuffle::index, mask, value,
                                  static_cast<unsigned>(lane), width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return emulator::warp_shuffle(emulator::Shuffle::up, mask, value, delta, width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return emulator::warp_shuffle(emulator::Shuffle::down, mask, value, delta, width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
    return emulator::warp_shuffle(emulator::Shuffle::exclusive_or, mask, value,
                                  static_cast<unsigned>(lane_mask), width);
}

#ifdef __SANITIZE_THREAD__ // a build that checks for races (../races/races.h)
namespace emulator {
void race_atomic(const void *address, size_t bytes, const void *at);
void race_fence();
} // namespace emulator
#define EMULATOR_RACES(call) emulator::call
#define EMULATOR_UNCHECKED   __attribute__((noinline, no_sanitize("thread")))
#else
#define EMULATOR_RACES(call)
#define EMULATOR_UNCHECKED
#endif

// Emulated threads take turns only at barriers, so these operations are not interrupted.
template <typename T, typename Change>
EMULATOR_UNCHECKED T emulator_atomic(T *address, Change change) {
    EMULATOR_RACES(race_atomic(address, sizeof(T), __builtin_return_address(0)));
    T old = *address;
    *address = change(old);
    return old;
}
#define EMULATOR_ATOMICS(T)                                                                      \
    inline T atomicAdd(T *address, T value) {                                                    \
        return emulator_atomic(address, [value](T old) { return static_cast<T>(old + value); }); \
    }                                                                                            \
    inline T atomicMax(T *address, T value) {                                                    \
        return emulator_atomic(address, [value](T old) { return old > value ? old : value; });   \
    }                                                                                            \
    inline T atomicMin(T *address, T value) {                                                    \
        return emulator_atomic(address, [value](T old) { return old < value ? old : value; });   \
    }                                                                                            \
    inline T atomicOr(T *address, T value) {                                                     \
        return emulator_atomic(address, [value](T old) { return old | value; });                 \
    }                                                                                            \
    inline T atomicExch(T *address, T value) {                                                   \
        return emulator_atomic(address, [value](T) { return value; });                           \
    }                                                                                            \
    inline T atomicCAS(T *address, T compare, T value) {                                         \
        return emulator_atomic(address, [=](T old) { return old == compare ? value : old; });    \
    }
EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(unsigned long long)
#undef EMULATOR_ATOMICS
float atomicAdd(float *address, float value) = delete;
double atomicAdd(double *address, double value) = delete;

inline void __threadfence() {
    EMULATOR_RACES(race_fence());
}
inline void __threadfence_block() {}

// ---- arithmetic --------------------------------------------------------------------------------

using std::isfinite;
using std::isinf;
using std::isnan;

inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
    return 1.0 / std::sqrt(x);
}
inline float __expf(float x) {
    return std::exp(x);
}
inline float __logf(float x) {
    return std::log(x);
}
// Functions with an explicit rounding mode are never fused with neighbouring operations.
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float a) {
    return std::sqrt(a);
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dsub_rn(double a, double b) {
    return a - b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline float __double2float_rn(double a) {
    return static_cast<float>(a);
}

template <typename To, typename From> To emulator_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "only the type changes");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) {
    return emulator_bits<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return emulator_bits<unsigned>(x);
}
inline float __int_as_float(int x) {
    return emulator_bits<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return emulator_bits<float>(x);
}
inline long long __double_as_longlong(double x) {
    return emulator_bits<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return emulator_bits<double>(x);
}

template <typename T> T __ldg(const T *address) {
    return *address;
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}

// CUDA's min and max take two of a kind, and convert as C does where they are not.
template <typename A, typename B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// ---- launching ---------------------------------------------------------------------------------

struct cudaLaunchAttribute;
typedef struct cudaLaunchConfig_st {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes; // 0: the emulator has none
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs; // 0
} cudaLaunchConfig_t;

namespace emulator {

// Queues the kernel; `call` is one thread of it. `pointers` are those among its arguments.
cudaError_t kernel_launch(const cudaLaunchConfig_t &config, const void *kernel,
                          std::function<void()> call, const void *const *pointers, size_t count);

template <typename T> const void *pointer_of(const T &argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
        return argument;
    else
        return nullptr;
}

} // namespace emulator

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
    static_assert((sizeof(Parameters) + ... + 0) <= 4096, "CUDA passes 4 KiB of arguments");
    static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                  "arguments are copied as bytes");
    // A tuple of its own type: the arguments are converted and copied now, as CUDA does.
    std::tuple<Parameters...> copies(
        static_cast<Parameters>(std::forward<Arguments>(arguments))...);
    const void *pointers[sizeof...(Parameters) + 1] = {};
    std::apply(
        [&](const auto &...copy) {
            size_t i = 0;
            ((pointers[i++] = emulator::pointer_of(copy)), ...);
        },
        copies);
    return emulator::kernel_launch(
        *config, reinterpret_cast<const void *>(kernel),
        [kernel, copies] { std::apply(kernel, copies); }, pointers, sizeof...(Parameters));
}

#endif
