/* test_bench_step.c: bench_step computes the products of a model's linear layers alone, each as
 * often as a step does; its rates are those of their operations and of the medians of its times.
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

enum { ROUNDS = 5, MOST = 1000 };

static MatmulShape products[MOST]; // all that were computed
static size_t product_count, steps;

static void note_product(Compute how, MatmulShape shape, const float *a, const float *b, float *c,
                         bool accumulate) {
    assert_true(how.precision == PRECISION_F32 && !accumulate && product_count < MOST);
    assert_true(a != b && a != c && b != c);
    for (size_t i = 0; i < shape.m * shape.k; i += 97) c[0] = a[i]; // within the arrays
    for (size_t i = 0; i < shape.k * shape.n; i += 97) c[0] = b[i];
    for (size_t i = 0; i < shape.m * shape.n; i += 97) c[i] = 0;
    products[product_count++] = shape;
}

Device *__real_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err);
Device *__wrap_device_open(const char *name, Error *err) {
    Device *device = __real_device_open(name, err);
    watch_products(device, note_product);
    return device;
}

static double step_s(size_t step) {
    return (double)tick_ns(7 * step + 3) * 1e-9;
}

double __wrap_workload_step(Workload *w);
double __wrap_workload_step(Workload *w) {
    (void)w;
    return step_s(steps++);
}

typedef struct Layer {
    size_t rows, in, out;
    bool is_input;
} Layer;

// Checks that the products from *next on are those of the layer, and adds their operations.
static double check_layer(Layer l, size_t *next) {
    const MatmulShape wanted[] = {{false, true, l.rows, l.out, l.in},
                                  {true, false, l.out, l.in, l.rows},
                                  {false, false, l.rows, l.in, l.out}};
    for (int i = 0; i < (l.is_input ? 2 : 3); i++) {
        const MatmulShape *found = &products[(*next)++];
        assert_true(found->transpose_a == wanted[i].transpose_a);
        assert_true(found->transpose_b == wanted[i].transpose_b);
        assert_int_equal(found->m, wanted[i].m);
        assert_int_equal(found->n, wanted[i].n);
        assert_int_equal(found->k, wanted[i].k);
    }
    return (l.is_input ? 2 : 3) * 2.0 * (double)(l.rows * l.in * l.out);
}

// others: operations of a step that sgemm alone does not repeat. sizes: the line about the sizes.
static void check(const char *const *arguments, const Layer *layers, size_t count, double others,
                  const char *sizes) {
    char *text, wanted[300];
    size_t next = 0;
    double step[ROUNDS], sgemm[ROUNDS], flops = 0;
    product_count = steps = 0;
    assert_int_equal(run_bench(arguments, &text), STATUS_OK);
    for (int pass = 0; pass < 1 + ROUNDS; pass++) {
        flops = 0;
        for (size_t i = 0; i < count; i++) flops += check_layer(layers[i], &next);
    }
    assert_int_equal(product_count, next);
    for (size_t i = 0; i < ROUNDS; i++) { // the first step and the first products are the warm-up
        step[i] = step_s(i + 1);
        sgemm[i] = (double)tick_ns(2 * (i + 1) + 1) * 1e-9;
    }
    const double seconds = quantile_of(step, ROUNDS, 0.5), rate = (flops + others) / seconds / 1e9,
                 sgemm_rate = flops / quantile_of(sgemm, ROUNDS, 0.5) / 1e9;
    snprintf(wanted, sizeof wanted,
             "\n%s batch=%d rounds=5\nstep_ms_p50=%.3f step_gflops=%.1f sgemm_gflops=%.1f "
             "step_to_sgemm=%.3f\n",
             sizes, 16, seconds * 1e3, rate, sgemm_rate, rate / sgemm_rate);
    if (!strstr(text, wanted)) fail_msg("no %s in\n%s", wanted, text);
    free(text);
}

static void an_mlp(void **state) {
    (void)state;
    static const char *const three[] = {"bench_step", "--width", "200",      "--layers", "3",
                                        "--batch",    "16",      "--rounds", "5",        NULL};
    static const char *const one[] = {"bench_step", "--width", "30",       "--layers", "1",
                                      "--batch",    "16",      "--rounds", "5",        NULL};
    const Layer layers[] = {{16, 200, 200, true}, {16, 200, 200, false}, {16, 200, 200, false}};
    check(three, layers, 3, 3 * 2.0 * 16 * 200 * 10, "width=200 layers=3");
    check(one, &(Layer){16, 30, 30, true}, 1, 3 * 2.0 * 16 * 30 * 10, "width=30 layers=1");
}

static void a_gpt(void **state) {
    (void)state;
    static const char *const arguments[] = {
        "bench_step", "--model",   "gpt", "--layers", "2",  "--heads",  "2", "--embedding",
        "32",         "--context", "24",  "--batch",  "16", "--rounds", "5", NULL};
    const size_t rows = 16 * 24, c = 32;
    const Layer layers[] = {
        {rows, c, 3 * c, false}, {rows, c, 3 * c, false}, {rows, c, c, false},
        {rows, c, c, false},     {rows, c, 4 * c, false}, {rows, c, 4 * c, false},
        {rows, 4 * c, c, false}, {rows, 4 * c, c, false}, {rows, c, 76, false}};
    // Six products in attention, of half of all pairs.
    const double others = 6 * 2.0 * 2 * (double)(16 * 24 * (24 + 1) / 2 * c);
    check(arguments, layers, 9, others, "layers=2 heads=2 embedding=32 context=24");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_mlp), cmocka_unit_test(a_gpt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
