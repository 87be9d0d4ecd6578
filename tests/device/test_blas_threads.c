/* test_blas_threads.c: whether this BLAS is safe when two threads multiply at the same time.
 *
 * Some builds of OpenBLAS share packing buffers between callers without a lock, and return wrong
 * products now and then. (Debian's serial build: 29 of 100 at n = 16 with two threads.) The
 * matrices contain small integers, so that products are exact in any order of additions, and each
 * product is compared in full with a plain triple loop. Few calls or inexact comparisons would not
 * detect it. The same is tested with each product divided among several of OpenBLAS's own threads.
 */
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include <pthread.h>
#include <stdbool.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/kernels.h"
#include "tests/rigs/sanitizers.h"

enum { THREADS = 2, LARGEST = 128 };

typedef struct Caller {
    pthread_t thread;
    pthread_barrier_t *start;
    uint64_t seed;
    size_t length, calls, wrong;
    float a[LARGEST * LARGEST], b[LARGEST * LARGEST], c[LARGEST * LARGEST];
    float expected[LARGEST * LARGEST];
} Caller;

static void caller_prepare(Caller *caller) {
    size_t n = caller->length;
    for (size_t i = 0; i < n * n; i++) {
        caller->a[i] = (float)rng_below(caller->seed, RNG_STREAM_TEST, 2 * i, 15) - 7;
        caller->b[i] = (float)rng_below(caller->seed, RNG_STREAM_TEST, 2 * i + 1, 15) - 7;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++) sum += caller->a[i * n + k] * caller->b[k * n + j];
            caller->expected[i * n + j] = sum;
        }
}

static bool equal(const float *a, const float *b, size_t count) {
    size_t same = 0;
    for (size_t i = 0; i < count; i++) same += a[i] == b[i];
    return same == count;
}

static void *caller_run(void *argument) {
    Caller *caller = argument;
    size_t n = caller->length;
    pthread_barrier_wait(caller->start);
    for (size_t i = 0; i < caller->calls; i++) {
        memset(caller->c, 0xff, n * n * sizeof *caller->c); // NaN
        kernels_cpu.matrix->matmul((Compute){PRECISION_F32, NULL},
                                   (MatmulShape){false, false, n, n, n}, caller->a, caller->b,
                                   caller->c, false);
        if (!equal(caller->c, caller->expected, n * n)) caller->wrong++;
    }
    return NULL;
}

static void check_callers(size_t length, size_t calls) {
    Caller *callers = memory_zalloc(THREADS * sizeof *callers);
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        callers[i].start = &start;
        callers[i].seed = i + 1;
        callers[i].length = length;
        callers[i].calls = calls;
        caller_prepare(&callers[i]);
        assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        if (callers[i].wrong != 0)
            fail_msg("%zu of %zu products of %zux%zu were wrong in thread %zu: this BLAS is not "
                     "safe with several threads",
                     callers[i].wrong, calls, length, length, i);
    }
    pthread_barrier_destroy(&start);
    free(callers);
}

static void test_private_products(void **state) {
    (void)state;
    Error err = {0};
    CHECK_OK(kernels_cpu.prepare(&err) == 0, err);
    check_callers(16, 300000);
    check_callers(33, 60000);
    check_callers(LARGEST, 8000); // large enough for packing
}

// A device with a process to itself may use several threads (--threads), while a communication hook
// multiplies too. (ThreadSanitizer reports OpenBLAS's own synchronisation as races.)
static void test_divided_products(void **state) {
    (void)state;
    Error err = {0};
    if (UNDER_TSAN) skip();
    CHECK_OK(kernels_cpu.prepare(&err) == 0, err);
    CHECK_OK(kernels_cpu.use_threads(3, &err) == 0, err);
    check_callers(33, 20000); // too small to be divided among threads
    check_callers(LARGEST, 3000);
    CHECK_OK(kernels_cpu.prepare(&err) == 0, err);
    assert_int_equal(kernels_cpu.use_threads(100000, &err), -1);
    assert_non_null(strstr(err.message, "this BLAS gives no product 100000 threads"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_private_products),
                                       cmocka_unit_test(test_divided_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
