/* blas.c: the CPU backend's matrix products, and everything OpenBLAS needs to be told.
 *
 * Where this processor has the instructions of product.h, that multiplies for one thread.
 * OpenBLAS runs with one thread per caller: parallelism is this project's subject, and every device
 * brings its own thread. (--threads gives more, to a process of one device.) So the library must be
 * a build that is safe with several callers (the pthread or OpenMP build; the serial one shares its
 * packing buffers without a lock and then returns wrong products), and
 * tests/device/test_blas_threads.c checks that it is.
 */
#include "common/device/cpu/blas_memory.h"
#include "common/device/cpu/kernels.h"

#include <cblas.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
// OpenBLAS has this if it was built with kernels for many CPUs; otherwise it is NULL here.
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

// OpenBLAS chooses its kernels by the CPU's model number, when it is loaded. A model newer than the
// library gets those of a Prescott of 2004: right results at a fifth of the speed. Then we choose
// again, by the instructions that the CPU has. This happens before main, because later other
// threads may be inside the library. If OPENBLAS_CORETYPE is set, the user has chosen, and we do
// not.
__attribute__((constructor)) static void blas_choose_kernels(void) {
    if (getenv("OPENBLAS_CORETYPE") || !gotoblas_dynamic_init || !gotoblas_dynamic_quit) return;
    if (strcmp(openblas_get_corename(), "Prescott") != 0) return;
    __builtin_cpu_init();
    const char *core = NULL;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) core = "Haswell";
    if (core && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
        core = "SkylakeX";
    if (!core) return;
    setenv("OPENBLAS_CORETYPE", core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv("OPENBLAS_CORETYPE");
}
#endif

int cpu_prepare(Error *err) {
    if (openblas_get_parallel() == 0)
        return error_set(err, STATUS_USAGE,
                         "this OpenBLAS is the serial build, whose products are wrong when several "
                         "threads call it: install the pthread build (Debian, Ubuntu: "
                         "libopenblas-pthread-dev)");
    openblas_set_num_threads(1);
    return blas_memory_reserve(err);
}

// The OpenMP build counts threads for each caller anew.
int cpu_use_threads(int count, Error *err) {
    if (blas_memory_check((size_t)count, err) != 0) return -1;
    openblas_set_num_threads(count);
    if (openblas_get_parallel() == 1 && openblas_get_num_threads() == count) return 0;
    char about[160];
    cpu_describe(about, sizeof about);
    openblas_set_num_threads(1);
    return error_set(err, STATUS_USAGE, "this BLAS gives no product %d threads (%s)", count, about);
}

// Whether products are this project's own (product.h), not OpenBLAS's.
static bool is_own(void) {
    return product_runs_here() && openblas_get_num_threads() == 1;
}

void cpu_describe(char *buffer, size_t capacity) {
    const char *config = openblas_get_config(); // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
    const char *space = strchr(config, ' ');
    size_t name = space ? (size_t)(space - config) + 1 : 0;
    size_t length = name + strcspn(config + name, " ");
    const char *flavours[] = {"serial", "pthread", "OpenMP"};
    int parallel = openblas_get_parallel();
    int threads = openblas_get_num_threads();
    const char *coretype = getenv("OPENBLAS_CORETYPE");
    snprintf(buffer, capacity, "%.*s %s, %s, %d thread%s, OPENBLAS_CORETYPE %s%s", (int)length,
             config, openblas_get_corename(),
             parallel >= 0 && parallel <= 2 ? flavours[parallel] : "unknown", threads,
             threads == 1 ? "" : "s", coretype ? coretype : "unset",
             is_own() ? "; products by AVX-512" : "");
}

static int blas_int(size_t count) {
    CHECK(count <= INT_MAX, "%zu does not fit OpenBLAS's int", count);
    return (int)count;
}

// OpenBLAS sums up to SUM products before it adds them to c. Sums that are not longer have the same
// bits whether the bias is added first or last.
enum { SUM = 256 };

static void blas_multiply(const CpuProduct *of) {
    if (of->m == 0 || of->n == 0) return;
    // It saves a pass over c, which OpenBLAS would fill with zeros.
    const bool before = of->bias && !of->accumulate && of->k <= SUM;
    for (size_t i = 0; i < of->m; i++) {
        float *row = of->c + i * of->c_stride;
        if (before)
            memcpy(row, of->bias, of->n * sizeof *row);
        else if (of->k == 0 && !of->accumulate)
            memset(row, 0, of->n * sizeof *row);
    }
    // BLAS would refuse an empty sum for its strides.
    if (of->k > 0)
        cblas_sgemm(CblasRowMajor, of->a.transpose ? CblasTrans : CblasNoTrans,
                    of->b.transpose ? CblasTrans : CblasNoTrans, blas_int(of->m), blas_int(of->n),
                    blas_int(of->k), 1.0f, of->a.data, blas_int(of->a.stride), of->b.data,
                    blas_int(of->b.stride), of->accumulate || before ? 1.0f : 0.0f, of->c,
                    blas_int(of->c_stride));
    for (size_t i = 0; of->bias && !before && i < of->m; i++)
        cpu_elementwise.accumulate(of->c + i * of->c_stride, of->bias, of->n);
}

void cpu_multiply(const CpuProduct *of) {
    if (is_own())
        product_multiply(of);
    else
        blas_multiply(of);
}

static void product(Compute how, MatmulShape s, const float *a, const float *b, const float *bias,
                    float *c, bool accumulate) {
    HostProduct p = host_begin(how.precision, host_matmul_counts(s),
                               (HostProduct){a, b, bias, c, accumulate, how.workspace});
    cpu_multiply(&(CpuProduct){.m = s.m,
                               .n = s.n,
                               .k = s.k,
                               .a = {p.a, s.transpose_a ? s.m : s.k, s.transpose_a},
                               .b = {p.b, s.transpose_b ? s.k : s.n, s.transpose_b},
                               .bias = p.bias,
                               .c = p.c,
                               .c_stride = s.n,
                               .accumulate = p.accumulate});
    host_end(how.precision, host_matmul_counts(s), &p, c, accumulate);
}

static void cpu_matmul(Compute how, MatmulShape s, const float *a, const float *b, float *c,
                       bool accumulate) {
    product(how, s, a, b, NULL, c, accumulate);
}

static void cpu_linear(Compute how, LinearShape s, const float *x, const float *weight,
                       const float *bias, float *y) {
    product(how, (MatmulShape){false, true, s.rows, s.out, s.in}, x, weight, bias, y, false);
    if (!s.relu) return;
    cpu_elementwise.activation(ACTIVATION_RELU, y, y, s.rows * s.out, false);
    s.relu->y = y;
}

enum { COLUMNS = 512 }; // whose sums stay in the first-level cache

// Sums of up to COLUMNS neighbouring columns, in the order of the rows. Four rows are added at a
// time, so that the sums are loaded and stored less often.
VECTORISED static void sum_columns(double sums[COLUMNS], const float *x, size_t rows, size_t stride,
                                   size_t columns) {
    size_t i = 0;
    for (size_t j = 0; j < columns; j++) sums[j] = 0;
    for (; i + 4 <= rows; i += 4) {
        const float *a = x + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        INDEPENDENT
        for (size_t j = 0; j < columns; j++)
            sums[j] = sums[j] + (double)a[j] + (double)b[j] + (double)c[j] + (double)d[j];
    }
    for (; i < rows; i++) {
        INDEPENDENT
        for (size_t j = 0; j < columns; j++) sums[j] += (double)x[i * stride + j];
    }
}

static void bias_gradient(float *dbias, const float *dy, size_t rows, size_t columns,
                          bool accumulate) {
    for (size_t first = 0; first < columns; first += COLUMNS) {
        size_t width = columns - first < COLUMNS ? columns - first : COLUMNS;
        double sums[COLUMNS];
        sum_columns(sums, dy + first, rows, columns, width);
        for (size_t j = 0; j < width; j++) kernel_store(&dbias[first + j], sums[j], accumulate);
    }
}

static void cpu_linear_weight_gradient(Compute how, LinearShape s, const float *dy, const float *x,
                                       const LinearGradient *to) {
    if (to->dbias) bias_gradient(to->dbias, dy, s.rows, s.out, to->add_dbias);
    const MatmulShape shape = {true, false, s.out, s.in, s.rows};
    if (to->dweight) cpu_matmul(how, shape, dy, x, to->dweight, to->add_dweight);
}

static void cpu_linear_relu_gradient(Compute how, LinearShape s, const float *dy,
                                     const float *weight, const ReluMask *of, float *dx) {
    cpu_matmul(how, (MatmulShape){false, false, s.rows, s.in, s.out}, dy, weight, dx, false);
    cpu_elementwise.activation_gradient(ACTIVATION_RELU, dx, of->y, dx, s.rows * s.in, false);
}

const MatrixKernels cpu_matrix = {
    .matmul_workspace = host_matmul_workspace,
    .matmul = cpu_matmul,
    .linear = cpu_linear,
    .relu_mask = host_relu_mask,
    .linear_weight_gradient = cpu_linear_weight_gradient,
    .linear_relu_gradient = cpu_linear_relu_gradient,
};
