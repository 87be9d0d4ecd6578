/* test_bench_probe.c: bench_probe's rates are those of all threads' work and of the slowest
 * thread's clock; each thread is bound to a core, in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "common/device/device.h"
#include "tests/rigs/bench_main.h"
#include "tests/rigs/watched_products.h"

enum { THREADS = 3, PRODUCTS = 4, PASSES = 1, WIDTH = 384, FLOATS = 8 << 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int threads, products, on_core[CPU_SETSIZE];
static _Thread_local bool known;

// Makes a thread's times differ from the others', and notes its core.
static void begin_thread(void) {
    cpu_set_t mine;
    readings = 10 * (size_t)threads++;
    known = true;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    assert_int_equal(CPU_COUNT(&mine), 1);
    for (size_t core = 0; core < CPU_SETSIZE; core++) on_core[core] += CPU_ISSET(core, &mine) != 0;
}

static void note_product(Compute how, MatmulShape shape, const float *a, const float *b, float *c,
                         bool accumulate) {
    assert_true(how.precision == PRECISION_F32 && !accumulate);
    assert_true(shape.m == WIDTH && shape.n == WIDTH && shape.k == WIDTH);
    assert_true(b - a == FLOATS && c - b == FLOATS);
    for (size_t i = 0; i < 3 * (size_t)FLOATS; i += FLOATS - 1) assert_true(a[i] == 1);
    pthread_mutex_lock(&mutex);
    if (!known) begin_thread();
    products++;
    pthread_mutex_unlock(&mutex);
}

Device *__real_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err) {
    Device *device = __real_device_open(name, err);
    watch_products(device, note_product);
    return device;
}

// The nanoseconds of the slowest thread between its reading number `reading` and the one before.
static double slowest_ns(size_t reading) {
    double ns[THREADS];
    for (size_t t = 0; t < THREADS; t++) ns[t] = (double)tick_ns(10 * t + reading);
    return quantile_of(ns, THREADS, 1);
}

static void rates_are_those_of_the_slowest(void **state) {
    (void)state;
    static const char *const arguments[] = {"bench_probe", "--threads", "3", "--products",
                                            "4",           "--passes",  "1", NULL};
    char *text, wanted[200];
    cpu_set_t allowed;
    assert_int_equal(run_bench(arguments, &text), STATUS_OK);
    const double multiplied = slowest_ns(1), passed = slowest_ns(3);
    snprintf(wanted, sizeof wanted,
             "threads=3 gflops=%.1f triad_gbps=%.2f products_ms=%.3f passes_ms=%.3f\n",
             2.0 * WIDTH * WIDTH * WIDTH * THREADS * PRODUCTS / multiplied,
             4.0 * 3 * FLOATS * THREADS * PASSES / passed, multiplied / 1e6, passed / 1e6);
    assert_string_equal(text, wanted);
    assert_int_equal(threads, THREADS);
    assert_int_equal(products, THREADS * (1 + PRODUCTS)); // one loads the code
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int number = 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed)) continue;
        int own = 0; // threads t, t + cores, t + 2 cores, ... of core t
        for (int t = number++; t < THREADS; t += CPU_COUNT(&allowed)) own++;
        assert_int_equal(on_core[core], own);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_those_of_the_slowest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
