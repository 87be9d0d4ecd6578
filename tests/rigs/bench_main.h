/* bench_main.h: runs a program of bench/ in the test's process (programs/CMakeLists.txt:
 * ddpc_test_of_bench). The program's own clock is simulated: the time from one reading to the next
 * is known, and the test computes the printed times again.
 */
#ifndef TESTS_RIGS_BENCH_MAIN_H
#define TESTS_RIGS_BENCH_MAIN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rigs/captured.h"

int bench_main(int argc, char **argv);
uint64_t bench_clock_ns(void);

static _Thread_local size_t readings; // of this thread, since the program began
static _Thread_local uint64_t bench_now;

// Nanoseconds from reading number i - 1 of a thread to its number i.
static inline uint64_t tick_ns(size_t i) {
    return 1000000 + 1000 * (i * i * 37 % 9973);
}

uint64_t bench_clock_ns(void) {
    return bench_now += tick_ns(readings++);
}

// Runs the program with arguments, the last of which is NULL. *printed: its stdout, the caller's.
static inline int run_bench(const char *const *arguments, char **printed) {
    int count = 0;
    char *copies[32] = {0};
    for (; arguments[count]; count++) copies[count] = strdup(arguments[count]);
    readings = 0;
    bench_now = 0;
    Captured captured = captured_begin_of(stdout);
    const int status = bench_main(count, copies);
    *printed = captured_end(&captured);
    for (int i = 0; i < count; i++) free(copies[i]);
    return status;
}

static inline int compare_times(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double quantile_of(const double *values, size_t count, double q) {
    double sorted[128];
    assert_true(count <= 128);
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_times);
    double rest = q * (double)(count - 1), below = sorted[0];
    for (size_t i = 1; i < count && rest > 0; i++, rest--)
        below += (rest < 1 ? rest : 1) * (sorted[i] - below);
    return below;
}

#endif
