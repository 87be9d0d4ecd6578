/* test_bench_clip.c: bench_clip prints each way's fastest round by its clock, the ratios to the
 * first way, and the same norm of all ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "common/tensor_files/safetensors.h"
#include "tests/rigs/bench_main.h"
#include "tests/rigs/heap_in_use.h"
#include "tests/rigs/temp_folder.h"

enum { WAYS = 4, SCALE = 3, ROUNDS = 5, LONG = 2500, SHORT = 3 };

// Whole numbers, whose squares and sums are exact. Returns the sum of their squares.
static double save_gradients(const char *path) {
    static float values[LONG + SHORT];
    double sum = 0;
    for (size_t i = 0; i < LONG + SHORT; i++) {
        values[i] = (float)(i % 7);
        sum += (double)(i % 7 * (i % 7));
    }
    SafeEntry entries[] = {{"a", DTYPE_F32, 1, {LONG}, values, LONG * sizeof *values},
                           {"b", DTYPE_F32, 1, {SHORT}, values + LONG, SHORT * sizeof *values}};
    const SafeTensors content = {.entries = entries, .count = 2};
    Error err = {0};
    assert_int_equal(safetensors_write(path, &content, &err), 0);
    return sum;
}

static double fastest_ms(size_t way) {
    double ms[ROUNDS];
    for (size_t round = 0; round < ROUNDS; round++)
        ms[round] = (double)tick_ns(2 * (round * WAYS + way) + 1) / 1e6;
    return quantile_of(ms, ROUNDS, 0);
}

static void times_are_the_fastest_rounds(void **state) {
    static const char *const names[] = {"order", "blocks", "exact"};
    char *path = memory_format("%s/gradients", (const char *)*state), *text, wanted[500];
    const double norm = sqrt(save_gradients(path));
    const char *const arguments[] = {"bench_clip", "--gradients", path, "--rounds", "5", NULL};
    int length = snprintf(wanted, sizeof wanted, "%d gradients\n", LONG + SHORT);
    length += snprintf(wanted + length, sizeof wanted - (size_t)length,
                       "way,ms,with_scale_ms,ratio,ratio_with_scale,norm\n");
    const double scale = fastest_ms(SCALE), first = fastest_ms(0);
    for (size_t way = 0; way < SCALE; way++) {
        const double ms = fastest_ms(way);
        length += snprintf(wanted + length, sizeof wanted - (size_t)length,
                           "%s,%.4f,%.4f,%.3f,%.3f,%.9g\n", names[way], ms, ms + scale, ms / first,
                           (ms + scale) / (first + scale), norm);
    }
    HeapRuns runs = {0};
    while (heap_run(&runs)) {
        assert_int_equal(run_bench(arguments, &text), STATUS_OK);
        assert_string_equal(text, wanted);
        free(text);
    }
    assert_int_equal(runs.left, 0);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        times_are_the_fastest_rounds, temp_folder_make, temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
