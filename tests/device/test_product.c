/* test_product.c: bits of the CPU's own matrix products, which equal the chains of multiply-adds
 * defined in product.h and so are independent of tiles, blocks and packing.
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/cpu/product.h"

static float *normal(size_t count, uint64_t seed) {
    float *values = memory_zalloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = rng_normal(seed, 0, i);
    return values;
}

static float at(const CpuMatrix *of, size_t row, size_t column) {
    return of->transpose ? of->data[column * of->stride + row]
                         : of->data[row * of->stride + column];
}

// k is divided into chains of nearly equal length, multiples of 16.
static size_t chain_of(size_t k) {
    const size_t chains = k > PRODUCT_CHAIN ? (k + PRODUCT_CHAIN - 1) / PRODUCT_CHAIN : 1;
    return ((k + chains - 1) / chains + 15) / 16 * 16;
}

static float expected(const CpuProduct *of, size_t i, size_t j, float before) {
    const size_t chain = chain_of(of->k);
    float sum = of->bias ? of->bias[j] : 0, total = before;
    for (size_t p = 0; p < of->k; p++) {
        if (p > 0 && p % chain == 0) {
            total = p == chain && !of->accumulate ? sum : total + sum;
            sum = 0;
        }
        sum = fmaf(at(&of->a, i, p), at(&of->b, p, j), sum);
    }
    return of->k <= chain && !of->accumulate ? sum : total + sum;
}

// Gaps between the rows of c are not written.
static void check_product(CpuProduct of) {
    const size_t count = of.m * of.c_stride;
    float *c = normal(count, 4), *before = normal(count, 4);
    of.c = c;
    product_multiply(&of);
    for (size_t i = 0; i < of.m; i++)
        for (size_t j = 0; j < of.c_stride; j++) {
            const float was = before[i * of.c_stride + j], is = c[i * of.c_stride + j];
            const float wanted = j < of.n ? expected(&of, i, j, was) : was;
            if (is != wanted)
                fail_msg("%zu x %zu x %zu, transposed %d %d: [%zu, %zu] is %a, not %a", of.m, of.n,
                         of.k, of.a.transpose, of.b.transpose, i, j, (double)is, (double)wanted);
        }
    free(c), free(before);
}

enum { MOST = 600, GAP = 3, SHARING = 512 }; // rows with stride SHARING are copied first

// All four layouts, with and without bias, overwriting and accumulating. Rows in memory are `gap`
// elements apart.
static void check_gap(size_t m, size_t n, size_t k, size_t gap) {
    float *a = normal((m + gap) * (k + gap), 1), *b = normal((k + gap) * (n + gap), 2);
    float *bias = normal(n, 3);
    for (int i = 0; i < 8; i++) {
        const bool left = i & 1, right = i & 2, add = i & 4;
        check_product((CpuProduct){.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = {a, (left ? m : k) + gap, left},
                                   .b = {b, (right ? k : n) + gap, right},
                                   .bias = (i + (int)n) % 3 ? bias : NULL,
                                   .c_stride = n + gap,
                                   .accumulate = add});
    }
    free(a), free(b), free(bias);
}

static void check_sizes(size_t m, size_t n, size_t k) {
    check_gap(m, n, k, GAP);
}

static void products_are_chains(void **state) {
    (void)state;
    if (!product_runs_here()) skip();
    for (size_t n = 1; n <= 130; n += 1 + n % 3) check_sizes(n % 19 + 1, n, n % 70);
    for (size_t k = 0; k <= MOST; k += k % 7 + 29) check_sizes(9, 53, k);
    check_sizes(531, 17, 5);                // more than one block of rows
    check_sizes(270, 97, 3);                // more than one block of columns of a transposed a
    check_gap(531, 197, 5, SHARING - 5);    // copied rows of a, in two blocks
    check_gap(11, 197, 509, SHARING - 509); // in three chains
    check_sizes(0, 5, 3);
    check_sizes(5, 0, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
