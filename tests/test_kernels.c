/* test_kernels.c: every kernel of the CPU table against the reference table.
 *
 * Sizes are 0, 1, primes and one past a vector's width. An output is compared in full, after it was
 * filled with NaN (to be overwritten) or with random values (to be added to), and so are a few
 * guard elements behind it. A tolerance is relative to the largest reference value; 0 means equal
 * bits but for the sign of zero. test_kernels_ref.c tests the reference itself.
 */
#include "check.h"

#include <stdbool.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/kernels.h"

enum { CPU, REF, TABLES, GUARD = 16 };

static const Kernels *table(int which) {
    return which == CPU ? &kernels_cpu : &kernels_ref;
}

static const size_t sizes[] = {0, 1, 2, 7, 16, 17, 33, 101, 1009};
enum { SIZES = sizeof sizes / sizeof *sizes };

// `count` values of the standard normal distribution; `which` keeps tensors apart.
static float *normal(size_t count, uint64_t which) {
    float *x = memory_zalloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rng_normal(which, RNG_STREAM_TEST, i);
    return x;
}

// The same output for the two tables.
typedef struct Both {
    float *of[TABLES];
    size_t count;
} Both;

static Both both_start(size_t count, bool accumulate) {
    Both both = {.count = count};
    for (int t = 0; t < TABLES; t++) {
        both.of[t] = normal(count + GUARD, 99);
        for (size_t i = 0; i < count && !accumulate; i++) both.of[t][i] = NAN;
    }
    return both;
}

static void both_check(Both both, double tolerance, const char *what) {
    const float *cpu = both.of[CPU], *ref = both.of[REF];
    double scale = 0;
    for (size_t i = 0; i < both.count; i++) scale = fmax(scale, fabs((double)ref[i]));
    for (size_t i = 0; i < both.count; i++)
        if (!(fabs((double)cpu[i] - (double)ref[i]) <= tolerance * scale))
            fail_msg("%s, element %zu of %zu: %.9g, reference %.9g, largest %.3g", what, i,
                     both.count, (double)cpu[i], (double)ref[i], scale);
    float *guard = normal(both.count + GUARD, 99);
    for (int t = 0; t < TABLES; t++) {
        assert_memory_equal(both.of[t] + both.count, guard + both.count, GUARD * sizeof *guard);
        free(both.of[t]);
    }
    free(guard);
}

// ---- vectors ---------------------------------------------------------------------------------

static void check_vectors(size_t count) {
    float *a = normal(count, 1), *b = normal(count, 2);
    Both filled = both_start(count, false), added = both_start(count, false);
    Both in_place = both_start(count, true), sums = both_start(count, true);
    float total[TABLES], error[TABLES];
    for (int t = 0; t < TABLES; t++) {
        const Kernels *k = table(t);
        k->fill(filled.of[t], 2.5f, count);
        k->scale(filled.of[t], -3, count);
        k->add(added.of[t], a, b, count);
        k->add(in_place.of[t], in_place.of[t], b, count);
        k->accumulate(sums.of[t], a, count);
        k->mean(a, 3, &total[t], count);
        k->squared_error(a, b, 3, &error[t], count);
    }
    both_check(filled, 0, "fill, scale");
    both_check(added, 0, "add");
    both_check(in_place, 0, "add in place");
    both_check(sums, 0, "accumulate");
    check_close((double)total[CPU], (double)total[REF], 2e-7, "mean");
    check_close((double)error[CPU], (double)error[REF], 2e-7, "squared_error");
    free(a);
    free(b);
}

static void check_pointwise(size_t count, bool accumulate) {
    const float upstream = 1.4f;
    float *x = normal(count, 1), *dy = normal(count, 2);
    if (count > 6) x[0] = NAN, x[3] = 0, x[5] = INFINITY, x[6] = -INFINITY;
    Both relu = both_start(count, false), dx = both_start(count, accumulate);
    Both in_place = both_start(count, true), error = both_start(count, accumulate);
    for (int t = 0; t < TABLES; t++) {
        const Kernels *k = table(t);
        k->relu(relu.of[t], x, count);
        if (count > 6) { // the one case in which NaN is right
            assert_true(isnan(relu.of[t][0]));
            relu.of[t][0] = x[0] = 1;
            assert_true(isinf(relu.of[t][5]));
            relu.of[t][5] = 1;
            x[5] = x[6] = 1;
        }
        k->relu_gradient(dx.of[t], x, dy, count, accumulate);
        k->relu(in_place.of[t], in_place.of[t], count);
        k->relu_gradient(in_place.of[t], x, in_place.of[t], count, false);
        k->squared_error_gradient(x, dy, &upstream, 2, error.of[t], accumulate, count);
        if (count > 6) x[0] = NAN, x[5] = INFINITY, x[6] = -INFINITY;
    }
    both_check(relu, 0, "relu");
    both_check(dx, 0, "relu_gradient");
    both_check(in_place, 0, "relu in place");
    both_check(error, 2e-7, "squared_error_gradient");
    free(x);
    free(dy);
}

static void test_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        check_vectors(sizes[i]);
        check_pointwise(sizes[i], false);
        check_pointwise(sizes[i], true);
    }
}

// ---- matrix product --------------------------------------------------------------------------

static void check_matmul(Precision precision, int flags, size_t m, size_t n, size_t k) {
    float *a = normal(m * k, 1), *b = normal(k * n, 2);
    Both c = both_start(m * n, flags & 4);
    for (int t = 0; t < TABLES; t++) {
        void *room = memory_zalloc(table(t)->matmul_workspace(precision, m, n, k) + 1);
        table(t)->matmul(precision, flags & 1, flags & 2, m, n, k, a, b, c.of[t], flags & 4, room);
        free(room);
    }
    // A sum that lies between two 16-bit numbers may be rounded to either.
    both_check(c, precision == PRECISION_F32 ? 1e-6 : 8e-3, "matmul");
    free(a);
    free(b);
}

static void test_matmul(void **state) {
    (void)state;
    const size_t lengths[] = {0, 1, 3, 17, 33};
    for (int flags = 0; flags < 8; flags++) {
        for (int i = 0; i < 125; i++)
            for (int p = PRECISION_F32; p <= PRECISION_F16; p++)
                check_matmul((Precision)p, flags, lengths[i % 5], lengths[i / 5 % 5],
                             lengths[i / 25]);
        check_matmul(PRECISION_F32, flags, 129, 67, 513);
    }
}

static void check_bias(size_t rows, size_t columns, bool accumulate) {
    float *dy = normal(rows * columns, 1);
    Both dbias = both_start(columns, accumulate);
    for (int t = 0; t < TABLES; t++)
        table(t)->bias_gradient(dbias.of[t], dy, rows, columns, accumulate);
    both_check(dbias, 2e-7, "bias_gradient");
    free(dy);
}

static void check_linear(size_t rows, size_t out, size_t in, bool with_bias, bool relu) {
    float *x = normal(rows * in, 1), *w = normal(out * in, 2), *bias = normal(out, 3);
    Both y = both_start(rows * out, false);
    for (int t = 0; t < TABLES; t++)
        table(t)->linear(PRECISION_F32, x, w, with_bias ? bias : NULL, relu, y.of[t], rows, out, in,
                         NULL);
    both_check(y, 1e-6, "linear");
    free(x);
    free(w);
    free(bias);
}

static void test_linear(void **state) {
    (void)state;
    for (int i = 0; i < SIZES * SIZES; i++)
        for (int flags = 0; flags < 4; flags++)
            check_linear(sizes[i % SIZES] % 50, sizes[i / SIZES] % 50, 17, flags & 1, flags & 2);
}

static void test_bias(void **state) {
    (void)state;
    for (int i = 0; i < SIZES * SIZES; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_bias(sizes[i % SIZES] % 200, sizes[i / SIZES] % 200, accumulate);
}

// ---- windows ---------------------------------------------------------------------------------

static bool window_fits(Window *v) {
    if (v->h + 2 * v->pad < v->kernel || v->w + 2 * v->pad < v->kernel) return false;
    v->oh = (v->h + 2 * v->pad - v->kernel) / v->stride + 1;
    v->ow = (v->w + 2 * v->pad - v->kernel) / v->stride + 1;
    return true;
}

static void check_conv2d(Precision precision, const Window *v, bool with_bias, bool accumulate) {
    size_t inputs = v->n * v->c * v->h * v->w, outputs = v->n * v->k * v->oh * v->ow;
    size_t weights = v->k * v->c * v->kernel * v->kernel;
    float *x = normal(inputs, 1), *w = normal(weights, 2), *bias = normal(v->k, 3);
    float *dy = normal(outputs, 4);
    Both y = both_start(outputs, false), dx = both_start(inputs, accumulate);
    Both dw = both_start(weights, accumulate), db = both_start(v->k, accumulate);
    for (int t = 0; t < TABLES; t++) {
        const Kernels *k = table(t);
        size_t bytes = k->conv2d_workspace(precision, v);
        float *space = normal(bytes / sizeof(float) + GUARD, 5);
        float *guard = normal(bytes / sizeof(float) + GUARD, 5);
        k->conv2d(precision, v, x, w, with_bias ? bias : NULL, y.of[t], space);
        k->conv2d_input_gradient(precision, v, w, dy, dx.of[t], accumulate, space);
        k->conv2d_weight_gradient(precision, v, x, dy, dw.of[t], accumulate, space);
        k->conv2d_bias_gradient(v, dy, db.of[t], accumulate);
        assert_memory_equal((char *)space + bytes, (char *)guard + bytes, GUARD * sizeof(float));
        free(space);
        free(guard);
    }
    bool f32 = precision == PRECISION_F32; // else a sum may be rounded to either neighbour
    both_check(y, f32 ? 1e-6 : 8e-3, "conv2d");
    both_check(dx, f32 ? 1e-6 : 8e-3, "conv2d_input_gradient");
    both_check(dw, f32 ? 4e-6 : 8e-3,
               "conv2d_weight_gradient"); // sums over thousands of pixels, in float
    both_check(db, 2e-7, "conv2d_bias_gradient");
    free(x);
    free(w);
    free(bias);
    free(dy);
}

static void check_pools(const Window *v, bool accumulate) {
    size_t inputs = v->n * v->c * v->h * v->w, outputs = v->n * v->c * v->oh * v->ow;
    float *x = normal(inputs, 1), *dy = normal(outputs, 2);
    for (size_t i = 0; i < inputs; i++) x[i] = roundf(x[i]); // many equal ones
    int32_t *chosen[TABLES];
    Both max = both_start(outputs, false), dmax = both_start(inputs, accumulate);
    Both avg = both_start(outputs, false), davg = both_start(inputs, accumulate);
    for (int t = 0; t < TABLES; t++) {
        chosen[t] = memory_zalloc((outputs + 1) * sizeof **chosen);
        table(t)->max_pool(v, x, max.of[t], chosen[t]);
        table(t)->max_pool_gradient(v, chosen[t], dy, dmax.of[t], accumulate);
        table(t)->avg_pool(v, x, avg.of[t]);
        table(t)->avg_pool_gradient(v, dy, davg.of[t], accumulate);
    }
    assert_memory_equal(chosen[CPU], chosen[REF], outputs * sizeof **chosen);
    both_check(max, 0, "max_pool");
    both_check(dmax, 0, "max_pool_gradient");
    both_check(avg, 2e-7, "avg_pool");
    both_check(davg, 1e-6, "avg_pool_gradient");
    free(chosen[CPU]);
    free(chosen[REF]);
    free(x);
    free(dy);
}

static void test_windows(void **state) {
    (void)state;
    const size_t kernels[] = {1, 3, 5}, counts[] = {0, 1, 3}, heights[] = {1, 7, 8};
    size_t checked = 0;
    for (int i = 0; i < 3 * 3 * 3 * 3 * 3; i++) {
        Window v = {.n = counts[i % 3],
                    .c = 3,
                    .h = heights[i / 3 % 3],
                    .w = 9,
                    .kernel = kernels[i / 9 % 3],
                    .k = 5,
                    .stride = (size_t)(i / 27 % 3 + 1),
                    .pad = (size_t)(i / 81)};
        if (!window_fits(&v)) continue;
        for (int flags = 0; flags < 4; flags++)
            check_conv2d(PRECISION_F32, &v, flags & 1, flags & 2);
        v.k = v.c;
        for (int accumulate = 0; accumulate < 2 && 2 * v.pad <= v.kernel; accumulate++)
            check_pools(&v, accumulate);
        checked++;
    }
    assert_true(checked > 200);
}

// Shapes that the CPU backend cuts into several strips of rows, whose edges must meet.
static void test_large_windows(void **state) {
    (void)state;
    Window windows[] = {
        {.n = 2, .c = 16, .h = 32, .w = 32, .k = 16, .kernel = 3, .stride = 1, .pad = 1},
        {.n = 2, .c = 16, .h = 33, .w = 31, .k = 32, .kernel = 3, .stride = 2, .pad = 1},
        {.n = 1, .c = 33, .h = 17, .w = 16, .k = 32, .kernel = 1, .stride = 1, .pad = 0},
        {.n = 1, .c = 64, .h = 32, .w = 32, .k = 17, .kernel = 1, .stride = 1, .pad = 0},
        {.n = 1, .c = 2, .h = 5, .w = 701, .k = 3, .kernel = 5, .stride = 1, .pad = 2},
        {.n = 1, .c = 8, .h = 40, .w = 24, .k = 33, .kernel = 5, .stride = 3, .pad = 0},
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        assert_true(window_fits(&windows[i]));
        for (int accumulate = 0; accumulate < 2; accumulate++)
            for (int p = PRECISION_F32; p <= (i < 2 ? PRECISION_F16 : PRECISION_F32); p++)
                check_conv2d((Precision)p, &windows[i], true, accumulate);
    }
}

static void test_shortcut(void **state) {
    (void)state;
    for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
        Window v = {.n = (size_t)(i % 3),
                    .c = 4,
                    .h = 7,
                    .w = 6,
                    .k = 4 + (size_t)(i / 18 * 5),
                    .kernel = 1,
                    .stride = (size_t)(i / 3 % 3 + 1)};
        assert_true(window_fits(&v));
        bool accumulate = i / 9 % 2;
        size_t inputs = v.n * v.c * v.h * v.w, outputs = v.n * v.k * v.oh * v.ow;
        float *x = normal(inputs, 1), *dy = normal(outputs, 2);
        Both y = both_start(outputs, false), dx = both_start(inputs, accumulate);
        for (int t = 0; t < TABLES; t++) {
            table(t)->shortcut(&v, x, y.of[t]);
            table(t)->shortcut_gradient(&v, dy, dx.of[t], accumulate);
        }
        both_check(y, 0, "shortcut");
        both_check(dx, 0, "shortcut_gradient");
        free(x);
        free(dy);
    }
}

// ---- batch norm ------------------------------------------------------------------------------

typedef struct NormCase {
    size_t n, c, inner;
    float mean, spread; // of x
} NormCase;

static float *spread_around(size_t count, float mean, float spread) {
    float *x = normal(count, 1);
    for (size_t i = 0; i < count; i++) x[i] = mean + spread * x[i];
    return x;
}

static void check_norm_forward(NormCase s) {
    size_t count = s.n * s.c * s.inner;
    float *x = spread_around(count, s.mean, s.spread), *w = normal(s.c, 2), *b = normal(s.c, 3);
    bool any = count > 0;
    Both y = both_start(count, false), mean = both_start(s.c, !any), invstd = both_start(s.c, !any);
    Both r_mean = both_start(s.c, true), r_var = both_start(s.c, true),
         e = both_start(count, false);
    for (int t = 0; t < TABLES; t++) {
        const Kernels *k = table(t);
        for (size_t i = 0; i < s.c; i++) r_var.of[t][i] = fabsf(r_var.of[t][i]);
        k->batch_norm(x, w, b, y.of[t], mean.of[t], invstd.of[t], r_mean.of[t], r_var.of[t], 0.1f,
                      1e-10f, s.n, s.c, s.inner);
    }
    for (int t = 0; t < TABLES; t++)
        table(t)->batch_norm_eval(x, w, b, e.of[t], r_mean.of[REF], r_var.of[REF], 1e-5f, s.n, s.c,
                                  s.inner);
    // The mean is rounded to float before it is subtracted.
    double rounding = 2e-6 + 1e-7 * (double)(s.mean / s.spread);
    both_check(y, rounding, "batch_norm");
    both_check(mean, 1e-7, "batch_norm mean");
    both_check(invstd, 3e-7, "batch_norm invstd");
    both_check(r_mean, 2e-7, "batch_norm running_mean");
    both_check(r_var, 3e-7, "batch_norm running_var");
    both_check(e, 1e-6, "batch_norm_eval");
    free(x);
    free(w);
    free(b);
}

static void check_norm_gradient(NormCase s, int flags) {
    size_t count = s.n * s.c * s.inner;
    bool add = flags & 1, eval = flags & 2, want_dx = flags & 4, want_parameters = flags & 8;
    float *x = spread_around(count, s.mean, s.spread), *dy = normal(count, 4), *w = normal(s.c, 2);
    float *mean = spread_around(s.c, s.mean, 0.1f * s.spread);
    float *inverse = spread_around(s.c, 1 / s.spread, 0.0f);
    Both dx = both_start(count, add || !want_dx), dw = both_start(s.c, add || !want_parameters);
    Both db = both_start(s.c, add || !want_parameters);
    for (int t = 0; t < TABLES; t++) {
        float *to_dx = want_dx ? dx.of[t] : NULL;
        float *to_dw = want_parameters ? dw.of[t] : NULL;
        float *to_db = want_parameters ? db.of[t] : NULL;
        if (eval) // inverse stands for a variance here
            table(t)->batch_norm_eval_gradient(x, dy, w, mean, inverse, 1e-5f, to_dx, add, to_dw,
                                               add, to_db, add, s.n, s.c, s.inner);
        else
            table(t)->batch_norm_gradient(x, dy, w, mean, inverse, to_dx, add, to_dw, add, to_db,
                                          add, s.n, s.c, s.inner);
    }
    both_check(dx, 2e-6, "batch_norm dx");
    both_check(dw, 1e-6, "batch_norm dweight");
    both_check(db, 1e-6, "batch_norm dbias");
    free(x);
    free(dy);
    free(w);
    free(mean);
    free(inverse);
}

// The steps of a batch norm over ranks, on what one of them holds.
static void check_norm_steps(NormCase s) {
    size_t count = s.n * s.c * s.inner;
    float *x = spread_around(count, s.mean, s.spread), *dy = normal(count, 4);
    float *w = normal(s.c, 2), *b = normal(s.c, 3);
    float *center = spread_around(s.c, s.mean, 0.1f * s.spread);
    float *inverse = spread_around(s.c, 1 / s.spread, 0.0f);
    for (int flags = 0; flags < 8; flags++) {
        bool add = flags & 1, want_dw = flags & 2, want_db = flags & 4;
        Both mean = both_start(s.c, false), invstd = both_start(s.c, false);
        Both y = both_start(count, false), sums = both_start(2 * s.c, false);
        Both dw = both_start(s.c, add || !want_dw), db = both_start(s.c, add || !want_db);
        Both dx = both_start(count, add);
        const double everywhere = 3 * (double)(s.n * s.inner);
        for (int t = 0; t < TABLES; t++) {
            const Kernels *k = table(t);
            k->batch_norm_statistics(x, mean.of[t], invstd.of[t], 1e-10f, s.n, s.c, s.inner);
            k->batch_norm_apply(x, w, b, y.of[t], center, inverse, s.n, s.c, s.inner);
            k->batch_norm_gradient_sums(x, dy, center, inverse, sums.of[t],
                                        want_dw ? dw.of[t] : NULL, add, want_db ? db.of[t] : NULL,
                                        add, s.n, s.c, s.inner);
        }
        for (int t = 0; t < TABLES; t++)
            table(t)->batch_norm_gradient_apply(x, dy, w, center, inverse, sums.of[REF],
                                                &everywhere, dx.of[t], add, s.n, s.c, s.inner);
        both_check(mean, 1e-7, "batch_norm_statistics mean");
        both_check(invstd, 3e-7, "batch_norm_statistics invstd");
        both_check(y, 2e-6, "batch_norm_apply");
        both_check(sums, 1e-6, "batch_norm_gradient_sums");
        both_check(dw, 1e-6, "batch_norm_gradient_sums dweight");
        both_check(db, 1e-6, "batch_norm_gradient_sums dbias");
        both_check(dx, 2e-6, "batch_norm_gradient_apply");
    }
    free(x);
    free(dy);
    free(w);
    free(b);
    free(center);
    free(inverse);
}

// counts[ranks]: elements per channel. The result does not depend on where empty ranks stand.
static void check_norm_merge(size_t c, size_t ranks, const float *counts) {
    float *rows = normal(ranks * (2 * c + 1), 5);
    double total = 0, found[TABLES];
    for (size_t k = 0; k < ranks; k++) {
        float *row = rows + k * (2 * c + 1);
        for (size_t i = 0; i < c; i++) row[c + i] = 0.5f + fabsf(row[c + i]);
        for (size_t i = 0; i < 2 * c && counts[k] == 0; i++) row[i] = 0;
        if (c > 0) row[c] = 1 / sqrtf(1e-5f); // all x of the channel are equal
        row[2 * c] = counts[k];
        total += (double)counts[k];
    }
    bool touched = total > 1;
    Both mean = both_start(c, !touched), invstd = both_start(c, !touched);
    Both r_mean = both_start(c, true), r_var = both_start(c, true);
    for (int t = 0; t < TABLES; t++)
        table(t)->batch_norm_merge(rows, ranks, mean.of[t], invstd.of[t], r_mean.of[t], r_var.of[t],
                                   0.1f, 1e-5f, &found[t], c);
    assert_true(found[CPU] == total && found[REF] == total);
    both_check(mean, 3e-7, "batch_norm_merge mean");
    both_check(invstd, 3e-7, "batch_norm_merge invstd");
    both_check(r_mean, 3e-7, "batch_norm_merge running_mean");
    both_check(r_var, 3e-7, "batch_norm_merge running_var");
    free(rows);
}

static void test_batch_norm_over_ranks(void **state) {
    (void)state;
    const NormCase cases[] = {{0, 3, 4, 0, 1},  {3, 0, 4, 0, 1},    {3, 2, 0, 0, 1},
                              {1, 1, 1, 0, 1},  {1, 3, 17, 2, 1},   {5, 4, 33, -1, 3},
                              {3, 17, 1, 0, 1}, {4, 3, 101, 10, 1}, {2, 2, 1009, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_norm_steps(cases[i]);
    const float counts[] = {0, 0, 1, 0, 7, 1009, 1, 1 << 20, 0};
    for (size_t c = 0; c < 18; c += c < 3 ? 1 : 7)
        for (size_t first = 0; first < 9; first++)
            for (size_t ranks = 1; first + ranks <= 9; ranks++)
                check_norm_merge(c, ranks, counts + first);
}

static void test_batch_norm(void **state) {
    (void)state;
    const NormCase cases[] = {{0, 3, 4, 0, 1},   {3, 0, 4, 0, 1},   {3, 2, 0, 0, 1},
                              {2, 1, 1, 0, 1},   {1, 3, 17, 2, 1},  {5, 4, 33, -1, 3},
                              {3, 17, 1, 0, 1},  {8, 5, 64, 1, 1},  {4, 3, 101, 1e3f, 1e-2f},
                              {33, 7, 1, 50, 1}, {2, 2, 1009, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_norm_forward(cases[i]);
        for (int flags = 0; flags < 16; flags++) check_norm_gradient(cases[i], flags);
    }
}

// ---- losses and optimizers -------------------------------------------------------------------

static void check_cross_entropy(size_t n, size_t classes, bool accumulate) {
    float *logits = normal(n * classes, 1);
    int64_t *target = memory_zalloc((n + 1) * sizeof *target);
    for (size_t i = 0; i < n; i++)
        target[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, i, (uint64_t)classes);
    for (size_t i = 0; i < n * classes; i++) logits[i] *= 20; // some probabilities vanish
    Both p = both_start(n * classes, false), dx = both_start(n * classes, accumulate);
    float loss[TABLES];
    const float upstream = 0.6f;
    int64_t correct[TABLES];
    for (int t = 0; t < TABLES; t++) {
        const Kernels *k = table(t);
        k->cross_entropy(logits, target, 2, p.of[t], &loss[t], n, classes);
        k->cross_entropy_gradient(p.of[t], target, &upstream, 2, dx.of[t], accumulate, n, classes);
        k->count_correct(logits, target, &correct[t], n, classes);
    }
    both_check(p, 1e-6, "cross_entropy probabilities");
    both_check(dx, 1e-6, "cross_entropy_gradient");
    check_close((double)loss[CPU], (double)loss[REF], 1e-6, "cross_entropy");
    assert_int_equal(correct[CPU], correct[REF]);
    free(logits);
    free(target);
}

static void test_cross_entropy(void **state) {
    (void)state;
    for (int i = 0; i < SIZES * SIZES; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_cross_entropy(sizes[i % SIZES] % 200, sizes[i / SIZES] % 200 + 1, accumulate);
}

static void check_sgd(size_t count, SgdConfig config) {
    float *gradient = normal(count, 1), scalars[SCALARS] = {[SCALAR_LR] = 0.1f};
    Both w = both_start(count, true), v = both_start(count, config.momentum == 0);
    for (int t = 0; t < TABLES; t++)
        for (int step = 0; step < 3; step++) {
            // The parameter in two pieces: a list
            SgdTensor list[2];
            size_t half = count / 2;
            for (size_t i = 0; i < 2; i++)
                list[i] = (SgdTensor){.weight = w.of[t] + i * half,
                                      .gradient = gradient + i * half,
                                      .velocity = config.momentum == 0 ? NULL : v.of[t] + i * half,
                                      .scalars = scalars,
                                      .first = step == 0,
                                      .count = i ? count - half : half};
            table(t)->sgd(&config, list, 2);
        }
    both_check(w, 5e-7, "sgd weight");
    both_check(v, 5e-7, "sgd velocity");
    free(gradient);
}

static void check_adamw(size_t count) {
    float *gradient = normal(count, 1);
    const AdamWConfig config = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};
    Both w = both_start(count, true), m = both_start(count, true), v = both_start(count, true);
    for (int t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < count; i++) v.of[t][i] = fabsf(v.of[t][i]);
        for (int step = 1; step <= 3; step++) {
            const float scalars[SCALARS] = {
                [SCALAR_KEEP] = 0.995f,
                [SCALAR_STEP_SIZE] = (float)(0.1 / (1 - pow(0.9, step))),
                [SCALAR_BIAS_CORRECTION] = (float)sqrt(1 - pow(0.99, step))};
            const AdamWTensor tensor = {.weight = w.of[t],
                                        .gradient = gradient,
                                        .exp_avg = m.of[t],
                                        .exp_avg_sq = v.of[t],
                                        .scalars = scalars,
                                        .count = count};
            table(t)->adamw(&config, &tensor, 1);
        }
    }
    both_check(w, 1e-6, "adamw weight");
    both_check(m, 1e-6, "adamw exp_avg");
    both_check(v, 1e-6, "adamw exp_avg_sq");
    free(gradient);
}

static void test_optimizers(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        check_sgd(sizes[i], (SgdConfig){0});
        check_sgd(sizes[i], (SgdConfig){.weight_decay = 0.2f});
        check_sgd(sizes[i], (SgdConfig){.momentum = 0.9f, .weight_decay = 0.2f});
        check_sgd(sizes[i], (SgdConfig){.momentum = 0.9f, .nesterov = true});
        check_adamw(sizes[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_large_windows),
        cmocka_unit_test(test_shortcut),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_batch_norm_over_ranks),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
