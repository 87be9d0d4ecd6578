/* kernels.h: shared by the files of the CPU backend only. Formulas and
 * argument shapes are in common/device/kernels.h. blas.c is the only file that calls OpenBLAS.
 *
 * The build has no -march=native and no -ffast-math: a program runs on every x86-64, and additions
 * happen in the order that is written. Two things make loops fast nevertheless:
 *  - VECTORISED compiles a function for several instruction sets; the loader picks one
 *    (conv_sums.h: loops that are written for each set's registers);
 *  - a reduction is written with partial sums in Lanes, an order of additions that fits vector
 *    registers, so that the compiler need not change it (which it may not).
 */
#ifndef COMMON_DEVICE_CPU_KERNELS_H
#define COMMON_DEVICE_CPU_KERNELS_H

#include <string.h>

#include "common/base/error.h"
#include "common/base/vectorise.h"
#include "common/device/cpu/product.h"
#include "common/device/kernels_host.h"

// Four partial sums side by side (a vector type of GCC and clang: its operators work on all four).
// Two of them in turn, for 2 x 4 elements per round, keep additions from waiting for each other.
typedef double Lanes __attribute__((vector_size(32)));
enum { LANES = 4, LANES_ROUND = 2 * LANES };

static inline void lanes_load(Lanes *lanes, const float *x) {
    typedef float Floats __attribute__((vector_size(16)));
    Floats floats;
    memcpy(&floats, x, sizeof floats);
    *lanes = __builtin_convertvector(floats, Lanes);
}

static inline double lanes_sum(const Lanes sums[2]) {
    Lanes sum = sums[0] + sums[1];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The sum of a; of a b if b is not NULL; of (a - minus)^2 if minus is not NULL. Inlined with NULL
// constants, so that the loop has no conditions.
static inline double lanes_reduce(const float *a, const float *b, const float *minus,
                                  size_t count) {
    Lanes sums[2] = {{0}}, value = {0}, other;
    double sum = 0;
    size_t i = 0;
    for (; i + LANES_ROUND <= count; i += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&value, a + i + half * LANES);
            if (b || minus) lanes_load(&other, (b ? b : minus) + i + half * LANES);
            if (minus) value -= other;
            if (b || minus) value *= b ? other : value;
            sums[half] += value;
        }
    for (; i < count; i++) {
        double left = (double)a[i] - (minus ? (double)minus[i] : 0);
        sum += b ? left * (double)b[i] : minus ? left * left : left;
    }
    return sum + lanes_sum(sums);
}

// Four floats side by side.
typedef float FourFloats __attribute__((vector_size(16)));

// Sixteen partial sums in float, for short sums.
typedef float Wide __attribute__((vector_size(64)));
enum { WIDE = 16 };

static inline void wide_load(Wide *wide, const float *x) {
    memcpy(wide, x, sizeof *wide);
}

// Adds the upper half to the lower one, until one is left.
static inline float wide_sum(const Wide *sums) {
    typedef float Half __attribute__((vector_size(32)));
    typedef float Quarter __attribute__((vector_size(16)));
    Half low, high;
    memcpy(&low, sums, sizeof low);
    memcpy(&high, (const char *)sums + sizeof low, sizeof high);
    low += high;
    Quarter first, second;
    memcpy(&first, &low, sizeof first);
    memcpy(&second, (const char *)&low + sizeof first, sizeof second);
    first += second;
    return (first[0] + first[2]) + (first[1] + first[3]);
}

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

// Each of *largest becomes the larger of itself and x's.
static inline void wide_raise(Wide *largest, const float *x) {
    typedef int32_t Bits __attribute__((vector_size(sizeof(Wide))));
    Wide values;
    wide_load(&values, x);
    const Bits wins = values > *largest; // all bits are set where it is true
    *largest = (Wide)((wins & (Bits)values) | (~wins & (Bits)*largest));
}

// Returns the largest of the elements, of which there is one at least. A NaN need not be found: it
// reaches the sum of exponentials by itself.
static inline float wide_max(const float *x, size_t count) {
    float lanes[WIDE], max = x[0];
    for (size_t j = 1; count < WIDE && j < count; j++) max = larger(x[j], max);
    if (count < WIDE) return max;
    Wide largest;
    wide_load(&largest, x + count - WIDE); // the rest, and some elements of the last whole vector
    for (size_t j = 0; j + WIDE <= count; j += WIDE) wide_raise(&largest, x + j);
    memcpy(lanes, &largest, sizeof lanes);
    for (size_t k = 0; k < WIDE / 2; k++) lanes[k] = larger(lanes[k + WIDE / 2], lanes[k]);
    for (size_t k = 0; k < WIDE / 4; k++) lanes[k] = larger(lanes[k + WIDE / 4], lanes[k]);
    return larger(larger(lanes[0], lanes[1]), larger(lanes[2], lanes[3]));
}

// The indices [begin, end), of pixels or of a matrix's rows.
typedef struct Range {
    size_t begin, end;
} Range;

// row[i] = source[i stride]
static inline void strided_copy(float *row, const float *source, size_t count, size_t stride) {
    if (stride == 1)
        memcpy(row, source, count * sizeof *row);
    else if (stride == 2) // a stride known to the compiler can be vectorised
        for (size_t i = 0; i < count; i++) row[i] = source[i * 2];
    else
        for (size_t i = 0; i < count; i++) row[i] = source[i * stride];
}

// Stores a gradient, or adds it to the gradients of other uses of the tensor.
static inline void kernel_store(float *place, double value, bool accumulate) {
    *place = accumulate ? *place + (float)value : (float)value;
}

// ---- the families, each of the file that computes it --------------------------------------------
extern const ElementwiseKernels cpu_elementwise;
extern const SliceKernels cpu_slices;
extern const MatrixKernels cpu_matrix;
extern const ConvolutionKernels cpu_convolution;
extern const NormKernels cpu_norm;
extern const LossKernels cpu_loss;
extern const PixelKernels cpu_pixels;
extern const TransformerKernels cpu_transformer;
extern const OptimizerKernels cpu_optimizer;

// ---- blas.c ----
void cpu_describe(char *buffer, size_t capacity);
int cpu_prepare(Error *err);
int cpu_use_threads(int count, Error *err);
void cpu_multiply(const CpuProduct *of); // by OpenBLAS where product.h has no instructions

// ---- attention.c, of the family in transformer.c ----
size_t cpu_attention_workspace(Precision precision, const Attention *of);
void cpu_attention(Compute how, const Attention *of, const float *qkv, float *y, void *saved);
void cpu_attention_gradient(Compute how, const Attention *of, const float *qkv, const float *y,
                            const void *saved, const float *dy, float *dqkv, bool accumulate);

// ---- pool.c, of the family in conv.c ----
void cpu_shortcut(const Window *v, const float *x, float *y);
void cpu_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate);
void cpu_max_pool(const Window *v, const float *x, float *y, int32_t *chosen);
void cpu_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy, float *dx,
                           bool accumulate);
void cpu_avg_pool(const Window *v, const float *x, float *y);
void cpu_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate);

// ---- elementwise.c ----
double cpu_sum(const float *x, size_t count);

#endif
