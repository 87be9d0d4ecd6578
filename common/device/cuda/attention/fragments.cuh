/* fragments.cuh: products of matrices in 16 bits on tensor cores. The only file with instructions
 * that C++ has no words for; each has a twin in plain C++ beside it, which the emulator runs.
 *
 * A warp multiplies left[16, 16] right[16, 8] and adds to sums[16, 8]. Each lane holds parts of the
 * three, "fragments", in pairs of neighbours (the lower index in the lower 16 bits). With
 * g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *
 *     left:  of[0] row g,     columns 2t, 2t + 1      right: of[0] rows 2t, 2t + 1 of column g
 *            of[1] row g + 8, the same columns               of[1] rows 2t + 8, 2t + 9
 *            of[2] row g,     columns 2t + 8, 2t + 9  sums:  of[0], of[1] row g, columns 2t, 2t + 1
 *            of[3] row g + 8, these columns                  of[2], of[3] row g + 8, the same
 *
 * So sums[16, 16], two fragments side by side, are after rounding a left fragment of the next
 * product without any exchange between lanes.
 *
 * Capability 8.0 and above: kernels that use this are compiled for lower ones, too, where they trap
 * and are never launched. All lanes of a warp must call each function together.
 */
#ifndef COMMON_DEVICE_CUDA_ATTENTION_FRAGMENTS_CUH
#define COMMON_DEVICE_CUDA_ATTENTION_FRAGMENTS_CUH

#include <math.h>
#include <string.h>

#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"

enum { FRAGMENT = 16, FRAGMENT_COLUMNS = 8 }; // rows and inner dimension; columns

struct Left {
    unsigned of[4];
};
struct Right {
    unsigned of[2];
};
struct Sums16 {
    float of[4];
};

static inline __device__ unsigned lane_here() {
    return threadIdx.x % CUDA_WARP;
}
static inline __device__ unsigned lane_row() { // g
    return lane_here() / 4;
}
static inline __device__ unsigned lane_column() { // 2t
    return lane_here() % 4 * 2;
}

#ifdef CUDA_EMULATOR_RUNTIME_H // ---- the twins ---------------------------------------------------

template <typename T> static float upper_or_lower(unsigned pair, int upper) {
    const unsigned short bits = (unsigned short)(pair >> 16 * upper);
    T value;
    memcpy(&value, &bits, sizeof value);
    return widened(value);
}

template <typename T> static unsigned pair_of(float lower, float upper) {
    const T values[2] = {narrowed<T>(lower), narrowed<T>(upper)};
    unsigned pair;
    memcpy(&pair, values, sizeof pair);
    return pair;
}

static inline float power_of_two(float x) {
    return exp2f(x);
}

// The bytes are anything until the wait, when they arrive at last.
template <int BYTES> static void copy_start(void *to, const void *from, bool inside) {
    for (int i = 0; i < BYTES; i++) ((unsigned char *)to)[i] = 0xff;
    emulator::copy_later({to, inside ? from : NULL, BYTES});
}

static inline void copies_wait() {
    for (emulator::LateCopy copy; emulator::copy_next(&copy);)
        for (size_t i = 0; i < copy.bytes; i++)
            ((unsigned char *)copy.to)[i] = copy.from ? ((const unsigned char *)copy.from)[i] : 0;
}

template <typename T> static unsigned pair_at(const T *lower, const T *upper) {
    unsigned short bits[2];
    memcpy(&bits[0], lower, sizeof *bits);
    memcpy(&bits[1], upper, sizeof *bits);
    return bits[0] | (unsigned)bits[1] << 16;
}

static inline uint64_t two_from(unsigned a, unsigned b, unsigned lane) {
    return __shfl_sync(0xffffffff, a | (uint64_t)b << 32, (int)lane);
}

template <typename T> static void multiply_add(Sums16 *sums, const Left &given, const Right &b) {
    const bool sound = emulator::tensor_cores_are_sound();
    const Left a = {given.of[0], given.of[sound ? 1 : 2], given.of[sound ? 2 : 1], given.of[3]};
    for (unsigned s = 0; s < 4; s++) { // lane s of each four has the inner indices 2s, 2s + 1, + 8
        uint64_t left[2] = {two_from(a.of[0], a.of[2], 4 * lane_row() + s),
                            two_from(a.of[1], a.of[3], 4 * lane_row() + s)};
        for (unsigned j = 0; j < 2; j++) {
            uint64_t right = two_from(b.of[0], b.of[1], 4 * (lane_column() + j) + s);
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 4; k++)
                    sums->of[2 * i + j] +=
                        upper_or_lower<T>((unsigned)(left[i] >> 32 * (k / 2)), k % 2) *
                        upper_or_lower<T>((unsigned)(right >> 32 * (k / 2)), k % 2);
        }
    }
}

template <typename T> static void load_rights(Right b[2], const T *at, unsigned stride) {
    for (unsigned i = 0; i < 4; i++) {
        const T *from = at + (lane_row() + i / 2 * 8) * stride + lane_column() + i % 2 * 8;
        b[i / 2].of[i % 2] = pair_at(from, from + 1);
    }
}

template <typename T> static void load_rights_turned(Right b[2], const T *at, unsigned stride) {
    for (unsigned i = 0; i < 4; i++) {
        const T *from = at + (lane_column() + i % 2 * 8) * stride + lane_row() + i / 2 * 8;
        b[i / 2].of[i % 2] = pair_at(from, from + stride);
    }
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800 // ---- never launched -------------------------

template <typename T> static __device__ unsigned pair_of(float, float) {
    __trap();
    return 0;
}
template <int BYTES> static __device__ void copy_start(void *, const void *, bool) {
    __trap();
}
static inline __device__ void copies_wait() {
    __trap();
}
static inline __device__ float power_of_two(float) {
    __trap();
    return 0;
}
template <typename T> static __device__ void multiply_add(Sums16 *, const Left &, const Right &) {
    __trap();
}
template <typename T> static __device__ void load_rights(Right *, const T *, unsigned) {
    __trap();
}
template <typename T> static __device__ void load_rights_turned(Right *, const T *, unsigned) {
    __trap();
}

#else // ---- the instructions ---------------------------------------------------------------------

// Two floats rounded to T, as a pair.
template <typename T> static __device__ unsigned pair_of(float lower, float upper) {
    unsigned pair = 0;
    if constexpr (std::is_same_v<T, __half>)
        asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    else
        asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return pair;
}

// Starts to copy 4 or 16 bytes, aligned to as many, to shared memory; zeros if not `inside`.
template <int BYTES> static __device__ void copy_start(void *to, const void *from, bool inside) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to), size = inside ? BYTES : 0;
    if constexpr (BYTES == 16) // past the first-level cache
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(size)
                     : "memory");
}

// Waits for all copies that this thread has started.
static inline __device__ void copies_wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// 2^x by one instruction: an error of two units in the last place; 0 below 2^-126.
static inline __device__ float power_of_two(float x) {
    float y = 0;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define MULTIPLY_ADD(type)                                                                    \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(sums->of[0]), "+f"(sums->of[1]), "+f"(sums->of[2]), "+f"(sums->of[3]) \
                 : "r"(a.of[0]), "r"(a.of[1]), "r"(a.of[2]), "r"(a.of[3]), "r"(b.of[0]),      \
                   "r"(b.of[1]))

// sums += a b
template <typename T>
static __device__ void multiply_add(Sums16 *sums, const Left &a, const Right &b) {
    if constexpr (std::is_same_v<T, __half>)
        MULTIPLY_ADD("f16");
    else
        MULTIPLY_ADD("bf16");
}

// Four matrices [8, 8] from shared memory; lane i gives the address of row i % 8 of matrix i / 8.
#define LOAD_MATRICES(turned, to0, to1, to2, to3, from)                                       \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(to0), "=r"(to1), "=r"(to2), "=r"(to3)                                 \
                 : "r"((unsigned)__cvta_generic_to_shared(from))                              \
                 : "memory")

// Right factors of the columns 0 to 7 and 8 to 15, each of which is a row of at[16][stride]. Rows
// are aligned to 16 bytes, here and below.
template <typename T> static __device__ void load_rights(Right b[2], const T *at, unsigned stride) {
    const T *from =
        at + (lane_here() % 8 + lane_here() / 16 * 8) * stride + lane_here() / 8 % 2 * 8;
    LOAD_MATRICES("", b[0].of[0], b[0].of[1], b[1].of[0], b[1].of[1], from);
}

// The same of at[16][stride] as it is: its rows are the inner dimension.
template <typename T>
static __device__ void load_rights_turned(Right b[2], const T *at, unsigned stride) {
    const T *from = at + lane_here() % 16 * stride + lane_here() / 16 * 8;
    LOAD_MATRICES(".trans", b[0].of[0], b[0].of[1], b[1].of[0], b[1].of[1], from);
}

#endif

// ---- both ---------------------------------------------------------------------------------------

// x[16][stride], in any memory, as the left factor; zeros from row `rows` and column `columns` on.
// Neighbours of an even and an odd column are aligned together.
template <typename T>
static __device__ Left left_from(const T *x, size_t stride, unsigned rows, unsigned columns) {
    Left a = {};
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane_row() + i % 2 * 8, column = lane_column() + i / 2 * 8;
        if (row >= rows || column >= columns) continue;
        const Vector<T, 2> pair = vector_load<2>(&x[row * stride + column], 0);
        memcpy(&a.of[i], &pair, sizeof pair);
    }
    return a;
}

#endif
