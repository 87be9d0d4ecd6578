/* test_bench_zero.c: the times and ratios that bench_zero prints are those of its clock; a way
 * whose weights differ from DDP's is reported, and the exit status is 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/nn/optimizer.h"
#include "ddp/features/zero_optimizer.h"
#include "tests/rigs/bench_main.h"

enum { WAYS = 4, WARM_UP = 2, ROUNDS = 5, STEPS = 3, NONE = -1 };
static const char *const names[WAYS] = {"ddp", "whole", "scattered", "fused"};

static int faulty = NONE; // the way whose last weight is wrong
static const Optimizer *seen[WAYS];

static int way_of(const Optimizer *optimizer) {
    int way = 0;
    while (way < WAYS && seen[way] && seen[way] != optimizer) way++;
    assert_true(way < WAYS);
    seen[way] = optimizer;
    return way;
}

// Only `scattered` has an exchange before its step.
int __real_ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err);
int __wrap_ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err);
int __wrap_ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err) {
    static int calls; // whole, scattered, fused, and again
    assert_int_equal(config->apart, calls++ % 3 == 1);
    return __real_ddp_zero_optimizer(wrapper, config, err);
}

void __real_optimizer_step(Optimizer *optimizer, double lr);
void __wrap_optimizer_step(Optimizer *optimizer, double lr);
void __wrap_optimizer_step(Optimizer *optimizer, double lr) {
    const NamedTensors *all = &optimizer->parameters;
    const int way = way_of(optimizer);
    for (size_t i = 0; i < all->count && way == 0; i++)
        for (size_t k = 0; k < tensor_count(all->items[i].tensor); k++)
            assert_true(all->items[i].tensor->grad[k] == 1e-3f * (float)(k % 7));
    const OptimizerSharding *sharding = optimizer->config.sharding;
    assert_int_equal(sharding != NULL, way != 0);
    assert_int_equal(sharding && sharding->whole_gradients, way == 1);
    __real_optimizer_step(optimizer, lr);
    const Tensor *last = all->items[all->count - 1].tensor;
    if (way == faulty) tensor_f32(last)[tensor_count(last) - 1] += 1;
}

static char *run(int wrong, int status) {
    static const char *const arguments[] = {"bench_zero", "--hidden", "5", "--rounds",
                                            "5",          "--steps",  "3", NULL};
    char *text;
    faulty = wrong;
    memset(seen, 0, sizeof seen);
    assert_int_equal(run_bench(arguments, &text), status);
    return text;
}

// The milliseconds of step number `step`, for which the clock is read twice.
static double step_ms(size_t step) {
    return (double)tick_ns(2 * step + 1) / 1e6;
}

// A way's turn is in another place in each round. A turn's time is that of its median step.
static void time_ways(double ms[WAYS][ROUNDS]) {
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t turn = 0; turn < WAYS; turn++) {
            double steps[STEPS];
            for (size_t s = 0; s < STEPS; s++)
                steps[s] = step_ms(WAYS * WARM_UP + (round * WAYS + turn) * STEPS + s);
            ms[(round + turn) % WAYS][round] = quantile_of(steps, STEPS, 0.5);
        }
}

static void times_are_medians(void **state) {
    (void)state;
    double ms[WAYS][ROUNDS], ratios[ROUNDS];
    char *text = run(NONE, STATUS_OK), *at = text;
    time_ways(ms);
    for (int w = 0; w < WAYS; w++) {
        char wanted[300];
        for (size_t r = 0; r < ROUNDS; r++) ratios[r] = ms[w][r] / ms[0][r];
        snprintf(wanted, sizeof wanted,
                 "way=%s optimizer=adamw world_size=1 parameters=%d ms=%.4f best_ms=%.4f "
                 "ratio=%.4f ratio_p25=%.4f ratio_p75=%.4f bytes=",
                 names[w], 784 * 5 + 5 + 5 * 10 + 10, quantile_of(ms[w], ROUNDS, 0.5),
                 quantile_of(ms[w], ROUNDS, 0), quantile_of(ratios, ROUNDS, 0.5),
                 quantile_of(ratios, ROUNDS, 0.25), quantile_of(ratios, ROUNDS, 0.75));
        if (strncmp(at, wanted, strlen(wanted)) != 0) fail_msg("not %s: %s", wanted, text);
        at = strstr(at, " weights=equal\n");
        assert_non_null(at);
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(*at, '\0');
    free(text);
}

static void other_weights_are_reported(void **state) {
    (void)state;
    for (int wrong = 0; wrong < WAYS; wrong++) {
        char *text = run(wrong, STATUS_FAILED), *at = text;
        for (int w = 0; w < WAYS; w++) {
            const bool differs = w != 0 && (wrong == 0 || w == wrong);
            at = strstr(at, " weights=");
            assert_non_null(at);
            at += strlen(" weights=");
            if (strncmp(at, differs ? "DIFFER\n" : "equal\n", 6) != 0)
                fail_msg("%s is wrong: %s", names[wrong], text);
        }
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_medians),
        cmocka_unit_test(other_weights_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
