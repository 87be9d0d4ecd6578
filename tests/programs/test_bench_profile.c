/* test_bench_profile.c: bench_profile's profile, and what it prints, are those of its clock: the
 * medians of each part, the lines through two batches, when each gradient is ready.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/model/profile_file.h"
#include "tests/rigs/bench_main.h"
#include "tests/rigs/temp_folder.h"

enum { TENSORS = 4, READINGS = 5 + TENSORS, WARM_UP = 4, ROUNDS_MAX = 9, SLEEPS = 101 };
enum { FORWARD, LOSS, BACKWARD, OPTIMIZER, PARTS };

static int
    kinds[3]; // lines that were checked: with both parts, without the fixed one, without a slope

static void assert_near(double seen, double wanted) {
    if (fabs(seen - wanted) > 1e-9 * fabs(wanted)) fail_msg("%.12g, not %.12g", seen, wanted);
}

// The seconds from reading number `first` of a step to its reading number `last`.
static double between(size_t step, size_t first, size_t last) {
    double ns = 0;
    for (size_t i = first + 1; i <= last; i++) ns += (double)tick_ns(step * READINGS + i);
    return ns * 1e-9;
}

// The seconds of a step's part. In backward the clock is read for each gradient.
static double part_s(size_t step, int part) {
    static const size_t at[PARTS + 1] = {0, 1, 2, 3 + TENSORS, 4 + TENSORS};
    return between(step, at[part], at[part + 1]);
}

// Batches take turns: size 0 is half a batch, 1 a whole one.
static double median_s(size_t rounds, size_t size, int part) {
    double seconds[ROUNDS_MAX];
    for (size_t r = 0; r < rounds; r++) seconds[r] = part_s(WARM_UP + 2 * r + size, part);
    return quantile_of(seconds, rounds, 0.5);
}

static void check_line(RowTime line, double small, double small_rows, double large, double rows) {
    const double slope = (large - small) / (rows - small_rows), fixed = small - slope * small_rows;
    const int kind = slope < 0 ? 2 : fixed < 0 ? 1 : 0;
    kinds[kind]++;
    assert_near(line.fixed, kind == 2 ? large : kind == 1 ? 0 : fixed);
    assert_near(line.per_row, kind == 2 ? 0 : kind == 1 ? large / rows : slope);
}

// Seconds from the begin of backward until gradient number k is ready, over all rounds.
static double ready_s(size_t rounds, size_t k) {
    double seconds = 0;
    for (size_t r = 0; r < rounds; r++) seconds += between(WARM_UP + 2 * r + 1, 2, 3 + k);
    return seconds;
}

static void check_printed(const char *text, size_t rounds) {
    double late[SLEEPS];
    char wanted[300];
    const size_t next = (WARM_UP + 2 * rounds) * READINGS;
    for (size_t i = 0; i < SLEEPS; i++) late[i] = (double)tick_ns(next + 2 * i + 1) - 200e3;
    snprintf(wanted, sizeof wanted,
             "\nforward_ms=%.3f loss_ms=%.3f backward_ms=%.3f optimizer_ms=%.3f\n"
             "wake_us=%.1f after a sleep, as over an emulated link\n"
             "first gradient ready at %.0f %% of backward\n",
             1e3 * median_s(rounds, 1, FORWARD), 1e3 * median_s(rounds, 1, LOSS),
             1e3 * median_s(rounds, 1, BACKWARD), 1e3 * median_s(rounds, 1, OPTIMIZER),
             quantile_of(late, SLEEPS, 0.5) / 1e3,
             100 * ready_s(rounds, 0) / ready_s(rounds, TENSORS - 1));
    if (!strstr(text, wanted)) fail_msg("no %s in\n%s", wanted, text);
}

static void check(const char *path, size_t rows, size_t rounds) {
    char row_text[20], round_text[20], *text;
    snprintf(row_text, sizeof row_text, "%zu", rows);
    snprintf(round_text, sizeof round_text, "%zu", rounds);
    const char *const arguments[] = {
        "bench_profile", "--hidden", "4",        "--features", "3",      "--outputs", "2",
        "--rows",        row_text,   "--rounds", round_text,   "--save", path,        NULL};
    Error err = {0};
    StepProfile p;
    assert_int_equal(run_bench(arguments, &text), STATUS_OK);
    assert_int_equal(profile_file_read(&p, path, &err), 0);
    assert_int_equal(p.tensor_count, TENSORS);
    const RowTime lines[] = {p.forward, p.loss, p.backward};
    for (int part = FORWARD; part < OPTIMIZER; part++)
        check_line(lines[part], median_s(rounds, 0, part), (double)((rows + 1) / 2),
                   median_s(rounds, 1, part), (double)rows);
    assert_near(p.optimizer, median_s(rounds, 1, OPTIMIZER));
    for (size_t k = 0; k < TENSORS; k++)
        assert_near(p.tensors[k].ready, ready_s(rounds, k) / ready_s(rounds, TENSORS - 1));
    check_printed(text, rounds);
    step_profile_free(&p);
    free(text);
}

static void parts_are_medians_of_the_clock(void **state) {
    char *path = memory_format("%s/profile.json", (const char *)*state);
    for (size_t rows = 5; rows <= 8; rows += 3)
        for (size_t rounds = 1; rounds <= ROUNDS_MAX; rounds += 2) check(path, rows, rounds);
    for (int kind = 0; kind < 3; kind++) assert_true(kinds[kind] > 0);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        parts_are_medians_of_the_clock, temp_folder_make, temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
