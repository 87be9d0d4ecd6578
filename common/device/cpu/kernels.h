/* kernels.h: what the files of the CPU backend share (kernels_cpu*.c; nobody else includes it).
 *
 * kernels.c holds the table and the simple loops; blas.c is the only file that
 * calls OpenBLAS; conv.c slides windows; norm.c normalises;
 * pixels.c is for labels of pixels. Formulas and argument shapes are in kernels.h.
 *
 * The build has no -march=native and no -ffast-math: a program runs on every x86-64, and additions
 * happen in the order that is written. Two things make loops fast all the same:
 *  - KERNEL_CLONES compiles a function for several instruction sets; the loader picks one;
 *  - a reduction is written with partial sums in Lanes, an order of additions that fits vector
 *    registers, so that the compiler need not change it (which it may not).
 */
#ifndef COMMON_DEVICE_CPU_KERNELS_H
#define COMMON_DEVICE_CPU_KERNELS_H

#include <string.h>

#include "common/base/error.h"
#include "common/device/kernels.h"

// The loader calls the chooser before a sanitizer's runtime is up, so sanitized builds go without.
// So do those with clang, some of whose versions cannot call such a function from another file.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define KERNEL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERNEL_CLONES
#endif

// Before a loop whose iterations touch their own index only: may be vectorised even where the
// output is the input, which the compiler cannot know from two pointers.
#if defined(__clang__)
#define KERNEL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define KERNEL_INDEPENDENT _Pragma("GCC ivdep")
#endif

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

// A gradient goes into its place, or on top of what other uses of the tensor left there.
static inline void kernel_store(float *place, double value, bool accumulate) {
    *place = accumulate ? *place + (float)value : (float)value;
}

// ---- blas.c ----
void cpu_describe(char *buffer, size_t capacity);
int cpu_prepare(Error *err);
size_t cpu_matmul_workspace(Precision precision, size_t m, size_t n, size_t k);
void cpu_matmul(Precision precision, bool transpose_a, bool transpose_b, size_t m, size_t n,
                size_t k, const float *a, const float *b, float *c, bool accumulate,
                void *workspace);
void cpu_linear(Precision precision, const float *x, const float *weight, const float *bias,
                bool relu, float *y, size_t rows, size_t out, size_t in, void *workspace);
// A matrix that lies inside a larger one: rows are `stride` elements apart.
typedef struct CpuMatrix {
    const float *data;
    size_t stride;
    bool transpose;
} CpuMatrix;
// c[m,n] = a b (+ c), where c's rows are c_stride elements apart.
void cpu_matmul_strided(size_t m, size_t n, size_t k, CpuMatrix a, CpuMatrix b, float *c,
                        size_t c_stride, bool accumulate);

// ---- kernels.c ----
void cpu_accumulate(float *y, const float *x, size_t count);
double cpu_sum(const float *x, size_t count);

// ---- conv.c ----
size_t cpu_conv2d_workspace(Precision precision, const Window *window);
void cpu_conv2d(Precision precision, const Window *window, const float *x, const float *weight,
                const float *bias, float *y, void *workspace);
void cpu_conv2d_input_gradient(Precision precision, const Window *window, const float *weight,
                               const float *dy, float *dx, bool accumulate, void *workspace);
void cpu_conv2d_weight_gradient(Precision precision, const Window *window, const float *x,
                                const float *dy, float *dweight, bool accumulate, void *workspace);
void cpu_conv2d_bias_gradient(const Window *window, const float *dy, float *dbias, bool accumulate);
void cpu_shortcut(const Window *window, const float *x, float *y);
void cpu_shortcut_gradient(const Window *window, const float *dy, float *dx, bool accumulate);
void cpu_max_pool(const Window *window, const float *x, float *y, int32_t *chosen);
void cpu_max_pool_gradient(const Window *window, const int32_t *chosen, const float *dy, float *dx,
                           bool accumulate);
void cpu_avg_pool(const Window *window, const float *x, float *y);
void cpu_avg_pool_gradient(const Window *window, const float *dy, float *dx, bool accumulate);

// ---- norm.c ----
void cpu_batch_norm(const float *x, const float *weight, const float *bias, float *y, float *mean,
                    float *invstd, float *running_mean, float *running_var, float momentum,
                    float eps, size_t n, size_t c, size_t inner);
void cpu_batch_norm_eval(const float *x, const float *weight, const float *bias, float *y,
                         const float *running_mean, const float *running_var, float eps, size_t n,
                         size_t c, size_t inner);
void cpu_batch_norm_gradient(const float *x, const float *dy, const float *weight,
                             const float *mean, const float *invstd, float *dx, bool add_dx,
                             float *dweight, bool add_dweight, float *dbias, bool add_dbias,
                             size_t n, size_t c, size_t inner);
void cpu_batch_norm_eval_gradient(const float *x, const float *dy, const float *weight,
                                  const float *running_mean, const float *running_var, float eps,
                                  float *dx, bool add_dx, float *dweight, bool add_dweight,
                                  float *dbias, bool add_dbias, size_t n, size_t c, size_t inner);
void cpu_batch_norm_statistics(const float *x, float *mean, float *invstd, float eps, size_t n,
                               size_t c, size_t inner);
void cpu_batch_norm_merge(const float *rows, size_t ranks, float *mean, float *invstd,
                          float *running_mean, float *running_var, float momentum, float eps,
                          double *count, size_t c);
void cpu_batch_norm_apply(const float *x, const float *weight, const float *bias, float *y,
                          const float *mean, const float *invstd, size_t n, size_t c, size_t inner);
void cpu_batch_norm_gradient_sums(const float *x, const float *dy, const float *mean,
                                  const float *invstd, float *sums, float *dweight,
                                  bool add_dweight, float *dbias, bool add_dbias, size_t n,
                                  size_t c, size_t inner);
void cpu_batch_norm_gradient_apply(const float *x, const float *dy, const float *weight,
                                   const float *mean, const float *invstd, const float *sums,
                                   const double *count, float *dx, bool add_dx, size_t n, size_t c,
                                   size_t inner);

// ---- pixels.c ----
void cpu_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w);
void cpu_upsample2x_gradient(const float *dy, float *dx, bool accumulate, size_t planes, size_t h,
                             size_t w);
void cpu_pixel_cross_entropy(const float *logits, const int64_t *target, float *probabilities,
                             float *losses, size_t n, size_t classes, size_t inner);
void cpu_hard_pixels(const float *losses, const int64_t *target, float threshold, size_t least,
                     uint8_t *kept, int64_t *kept_count, float *sum, size_t count);
void cpu_pixel_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                      const uint8_t *kept, const float *upstream, float *dlogits,
                                      bool accumulate, size_t n, size_t classes, size_t inner);
void cpu_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                        size_t inner);

#endif
