/* test_bench_scaling.c: the times and ratios that bench_scaling prints are those of its ranks'
 * steps and clocks: together, ranks take as long as the slowest; the first round does not count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "bench/workload.h"
#include "tests/rigs/bench_main.h"
#include "tests/rigs/watched_products.h"

enum { WORLD = 3, ROUNDS = 5, WARM_UP = 1, BATCH = 12 };

static int products[WORLD];
static _Thread_local int rank;

static void no_product(Compute how, MatmulShape shape, const float *a, const float *b, float *c,
                       bool accumulate) {
    (void)how, (void)accumulate;
    assert_true(shape.m == 1024 && shape.n == 1024 && shape.k == 1024);
    assert_true(b - a == 1024 * 1024 && c - b == 1024 * 1024);
    products[rank]++;
}

Device *__real_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err) {
    Device *device = __real_device_open(name, err);
    rank = device->index;
    watch_products(device, no_product);
    return device;
}

// The seconds of step number `round` of a rank, alone or with the others.
static double step_s(int of, bool alone, size_t round) {
    return (double)tick_ns(round * 2 * WORLD + (size_t)of * 2 + alone) * 1e-9;
}

double __wrap_workload_step(Workload *w);
double __wrap_workload_step(Workload *w) {
    static _Thread_local size_t taken[2];
    const bool alone = !w->is_ddp;
    assert_int_equal(w->batch, alone ? BATCH : BATCH / WORLD);
    assert_true(!alone || w->device->index == 0);
    return step_s(w->device->index, alone, taken[alone]++);
}

// The seconds of the products in a round. The clock is read twice for each, on rank 0 also for
// those that it computes alone.
static double probe_s(int of, bool alone, size_t round) {
    const size_t reading = of > 0 ? 2 * round + 1 : 4 * round + (alone ? 1 : 3);
    return (double)tick_ns(reading) * 1e-9;
}

static double slowest(double (*seconds)(int of, bool alone, size_t round), size_t round) {
    double most = 0;
    for (int r = 0; r < WORLD; r++)
        if (seconds(r, false, round) > most) most = seconds(r, false, round);
    return most;
}

static void ratios_are_medians(void **state) {
    (void)state;
    static const char *const arguments[] = {
        "bench_scaling", "--model", "mlp", "--global-batch", "12", "--world", "3",
        "--rounds",      "5",       NULL};
    double single[ROUNDS], all[ROUNDS], probe[ROUNDS], probe_all[ROUNDS], speedup[ROUNDS],
        cores[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        const size_t round = i + WARM_UP;
        single[i] = step_s(0, true, round);
        all[i] = slowest(step_s, round);
        probe[i] = probe_s(0, true, round);
        probe_all[i] = slowest(probe_s, round);
        speedup[i] = single[i] / all[i];
        cores[i] = WORLD * probe[i] / probe_all[i];
    }
    char *text, wanted[300];
    assert_int_equal(run_bench(arguments, &text), STATUS_OK);
    snprintf(wanted, sizeof wanted,
             "\nmodel=mlp global_batch=12 world=3 backend=shm rounds=5\n"
             "single_ms_p50=%.2f ddp_ms_p50=%.2f speedup=%.3f speedup_p25=%.3f speedup_p75=%.3f "
             "cores=%.3f probe_ms_p50=%.2f probe_all_ms_p50=%.2f\n",
             quantile_of(single, ROUNDS, 0.5) * 1e3, quantile_of(all, ROUNDS, 0.5) * 1e3,
             quantile_of(speedup, ROUNDS, 0.5), quantile_of(speedup, ROUNDS, 0.25),
             quantile_of(speedup, ROUNDS, 0.75), quantile_of(cores, ROUNDS, 0.5),
             quantile_of(probe, ROUNDS, 0.5) * 1e3, quantile_of(probe_all, ROUNDS, 0.5) * 1e3);
    if (!strstr(text, wanted)) fail_msg("no %s in\n%s", wanted, text);
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(products[r], 8 * (r == 0 ? 2 : 1) * (ROUNDS + WARM_UP));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ratios_are_medians)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
