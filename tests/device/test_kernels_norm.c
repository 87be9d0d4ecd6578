/* test_kernels_norm.c: a device's batch norm (the CPU's by default, or that of the device given as
 * argument) against the reference: as one kernel, and as the steps between the collectives of
 * SyncBatchNorm.
 *
 * A channel's contiguous run of elements is long or short, a multiple of a vector or not, one
 * element, or empty.
 */
#include "tests/rigs/two_devices.h"

typedef struct NormCase {
    size_t n, c, inner;
    float mean, spread; // mean and standard deviation of x
    float first;        // added to the first element of each channel
} NormCase;

// From 4096 elements per channel on, or 64 rows of short runs, the GPU splits a channel's sum.
static const NormCase cases[] = {
    {0, 3, 4, 0, 1, 0},
    {3, 0, 4, 0, 1, 0},
    {3, 2, 0, 0, 1, 0},
    {2, 1, 1, 0, 1, 0},
    {1, 3, 17, 2, 1, 0},
    {5, 4, 33, -1, 3, 0},
    {3, 17, 1, 0, 1, 0},
    {8, 5, 64, 1, 1, 0},
    {33, 7, 1, 50, 1, 0},
    {2, 2, 1009, 0, 1, 0},
    {4, 3, 101, 1e3f, 1e-2f, 0},
    {9, 3, 15, -4, 1, 0},
    {9, 3, 16, 1, 1, 0},
    {301, 35, 1, 0, 2, 0},
    {131, 5, 9, 3, 1, 0},
    {3, 2100, 1, 0, 1, 0},
    {3, 128, 8, 1, 2, 0}, // images of whole pages: several channels per pass
    {2, 96, 32, -2, 1, 0},
    {70, 3, 196, 1, 1, 0},
    {5, 2, 2017, 0, 1, 0},
    {1, 2, 61440, 0.1f, 1e-2f, 5.3f},
    {20000, 2, 1, 0.1f, 1e-2f, 5.3f}};
enum { CASES = sizeof cases / sizeof *cases };

static Both spread_around(TwoDevices *two, size_t count, float mean, float spread) {
    float *x = two_normal(two, count, 1);
    for (size_t i = 0; i < count; i++) x[i] = mean + spread * x[i];
    return both_floats(two, x, count);
}

static Both inputs(TwoDevices *two, NormCase s) {
    size_t count = s.n * s.c * s.inner;
    float *x = two_normal(two, count, 1);
    for (size_t i = 0; i < count; i++)
        x[i] = s.mean + s.spread * x[i] + (i < s.c * s.inner && i % s.inner == 0 ? s.first : 0);
    return both_floats(two, x, count);
}

static Both positive_output(TwoDevices *two, size_t count) {
    float *x = two_normal(two, count, 6);
    for (size_t i = 0; i < count; i++) x[i] = fabsf(x[i]);
    return both_output(two, x, count);
}

// Tolerance of a mean: 2e-7 times the mean or, if larger, the standard deviation.
static double of_mean(NormCase s) {
    const double mean = fabs((double)s.mean), spread = (double)s.spread;
    const double found = spread / sqrt((double)(s.n * s.inner)); // the mean found if `mean` is 0
    return 2e-7 * fmax(1, spread / fmax(mean, found));
}

// what: 0 batch norm; 1 with relu; 2 with residual and relu.
static void check_forward(TwoDevices *two, NormCase s, int what) {
    size_t count = s.n * s.c * s.inner;
    bool any = count > 0;
    Both x = inputs(two, s);
    Both w = both_normal(two, s.c, 2), b = both_normal(two, s.c, 3);
    Both y = both_start(two, count, false), e = both_start(two, count, true);
    Both mean = both_start(two, s.c, !any), invstd = both_start(two, s.c, !any);
    Both r_mean = both_start(two, s.c, true), r_var = positive_output(two, s.c);
    Both known_mean = both_normal(two, s.c, 4), known_var = positive_output(two, s.c);
    Both residual = both_normal(two, count, 5);
    const int64_t before = 41;
    Both counted = both_bytes(two, &before, sizeof before);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        BatchNorm norm = {.x = x.of[d],
                          .n = s.n,
                          .c = s.c,
                          .inner = s.inner,
                          .weight = w.of[d],
                          .bias = b.of[d],
                          .mean = mean.of[d],
                          .invstd = invstd.of[d],
                          .running_mean = r_mean.of[d],
                          .running_var = r_var.of[d],
                          .momentum = 0.1f,
                          .eps = 1e-10f,
                          .num_batches_tracked = counted.of[d],
                          .relu = what > 0,
                          .residual = what == 2 ? residual.of[d] : NULL};
        k->norm->batch_norm(&norm, y.of[d]);
        norm.x = e.of[d], norm.eps = 1e-5f;
        norm.running_mean = known_mean.of[d], norm.running_var = known_var.of[d];
        k->norm->batch_norm_eval(&norm, e.of[d]);
    }
    // The mean is rounded to float before it is subtracted.
    double rounding = 2e-6 + 1e-7 * (double)(s.mean / s.spread);
    both_check(y, rounding, "batch_norm");
    both_check(mean, of_mean(s), "batch_norm mean");
    both_check(invstd, 3e-7, "batch_norm invstd");
    both_check(r_mean, 2e-7, "batch_norm running_mean");
    both_check(r_var, 3e-7, "batch_norm running_var");
    both_check(e, 1e-6, "batch_norm_eval");
    assert_int_equal(*(int64_t *)both_read(counted, TESTED, sizeof before), before + 1);
    two_free(two);
}

static void check_gradient(TwoDevices *two, NormCase s, int flags) {
    size_t count = s.n * s.c * s.inner;
    bool add = flags & 1, eval = flags & 2, want_dx = flags & 4, want_parameters = flags & 8;
    bool relu = flags & 16;
    Both x = inputs(two, s);
    Both mean = spread_around(two, s.c, s.mean, 0.1f * s.spread);
    Both inverse = spread_around(two, s.c, 1 / s.spread, 0.0f);
    // Sums of equal values in float err more than random ones: all additions round in the same
    // direction.
    bool equal = s.first != 0 && !want_dx;
    Both dy = equal ? spread_around(two, count, 0.1f, 0) : both_normal(two, count, 4);
    Both w = both_normal(two, s.c, 2);
    Both y = both_normal(two, count, 7); // of relu; negative values stand for 0
    Both dx = both_start(two, count, add || !want_dx);
    Both dw = both_start(two, s.c, add || !want_parameters);
    Both db = both_start(two, s.c, add || !want_parameters);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        float *to_dx = want_dx ? dx.of[d] : NULL;
        float *to_dw = want_parameters ? dw.of[d] : NULL, *to_db = to_dw ? db.of[d] : NULL;
        const NormGradient to = {to_dx, to_dw, to_db, add, add, add};
        BatchNorm norm = {.x = x.of[d], .n = s.n, .c = s.c, .inner = s.inner, .weight = w.of[d]};
        if (eval) { // `inverse` is a variance in evaluation
            norm.running_mean = mean.of[d], norm.running_var = inverse.of[d], norm.eps = 1e-5f;
            k->norm->batch_norm_eval_gradient(&norm, dy.of[d], &to);
        } else {
            norm.mean = mean.of[d], norm.invstd = inverse.of[d];
            norm.relu = relu, norm.y = y.of[d];
            k->norm->batch_norm_gradient(&norm, dy.of[d], &to);
        }
    }
    both_check(dx, 2e-6, "batch_norm dx");
    both_check(dw, 1e-6, "batch_norm dweight");
    both_check(db, 1e-6, "batch_norm dbias");
    two_free(two);
}

static void test_batch_norm(void **state) {
    TwoDevices *two = *state;
    for (two->shift = 0; two->shift < 2; two->shift++)
        for (size_t i = 0; i < CASES; i++) {
            for (int what = 0; what < 3; what++) check_forward(two, cases[i], what);
            for (int flags = 0; flags < 16; flags++) check_gradient(two, cases[i], flags);
            const int after_relu[] = {16 + 4, 16 + 8, 16 + 8 + 4 + 1};
            for (int j = 0; j < 3; j++) check_gradient(two, cases[i], after_relu[j]);
        }
    two->shift = 0;
}

// ---- over ranks ------------------------------------------------------------------------------

// The steps of a batch norm over ranks, for one rank's share.
static void check_steps(TwoDevices *two, NormCase s, int flags) {
    size_t count = s.n * s.c * s.inner;
    bool add = flags & 1, want_dw = flags & 2, want_db = flags & 4;
    const double everywhere = 3 * (double)(s.n * s.inner);
    Both x = inputs(two, s), dy = both_normal(two, count, 4);
    Both w = both_normal(two, s.c, 2), b = both_normal(two, s.c, 3);
    Both center = spread_around(two, s.c, s.mean, 0.1f * s.spread);
    Both inverse = spread_around(two, s.c, 1 / s.spread, 0.0f);
    Both mean = both_start(two, s.c, false), invstd = both_start(two, s.c, false);
    Both y = both_start(two, count, false), sums = both_start(two, 2 * s.c, false);
    Both dw = both_start(two, s.c, add || !want_dw), db = both_start(two, s.c, add || !want_db);
    Both dx = both_start(two, count, add), all = both_normal(two, 2 * s.c, 5);
    Both elements = both_bytes(two, &everywhere, sizeof everywhere);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        BatchNorm norm = {.x = x.of[d], .n = s.n, .c = s.c, .inner = s.inner, .eps = 1e-10f};
        norm.mean = mean.of[d], norm.invstd = invstd.of[d];
        k->norm->batch_norm_statistics(&norm);
        norm.weight = w.of[d], norm.bias = b.of[d];
        norm.mean = center.of[d], norm.invstd = inverse.of[d];
        k->norm->batch_norm_apply(&norm, y.of[d]);
        NormGradient to = {NULL, want_dw ? dw.of[d] : NULL, want_db ? db.of[d] : NULL, false, add,
                           add};
        k->norm->batch_norm_gradient_sums(&norm, dy.of[d], sums.of[d], &to);
        to = (NormGradient){.dx = dx.of[d], .add_dx = add};
        k->norm->batch_norm_gradient_apply(&norm, dy.of[d], all.of[d], elements.of[d], &to);
    }
    both_check(mean, of_mean(s), "batch_norm_statistics mean");
    both_check(invstd, 3e-7, "batch_norm_statistics invstd");
    both_check(y, 2e-6, "batch_norm_apply");
    both_check(sums, 1e-6, "batch_norm_gradient_sums");
    both_check(dw, 1e-6, "batch_norm_gradient_sums dweight");
    both_check(db, 1e-6, "batch_norm_gradient_sums dbias");
    both_check(dx, 2e-6, "batch_norm_gradient_apply");
    two_free(two);
}

// counts[ranks]: elements per channel. Empty ranks at any position do not change the result.
static void check_merge(TwoDevices *two, size_t c, size_t ranks, const float *counts) {
    float *values = two_normal(two, ranks * (2 * c + 1), 5);
    double total = 0;
    for (size_t k = 0; k < ranks; k++) {
        float *row = values + k * (2 * c + 1);
        for (size_t i = 0; i < c; i++) row[c + i] = 0.5f + fabsf(row[c + i]);
        for (size_t i = 0; i < 2 * c && counts[k] == 0; i++) row[i] = 0;
        if (c > 0) row[c] = 1 / sqrtf(1e-5f); // the channel's x are all equal
        row[2 * c] = counts[k];
        total += (double)counts[k];
    }
    bool touched = total > 1;
    Both rows = both_floats(two, values, ranks * (2 * c + 1));
    Both mean = both_start(two, c, !touched), invstd = both_start(two, c, !touched);
    Both r_mean = both_start(two, c, true), r_var = both_start(two, c, true);
    Both found = both_bytes(two, NULL, sizeof total);
    for (int d = 0; d < DEVICES; d++) {
        const BatchNorm norm = {.c = c,
                                .mean = mean.of[d],
                                .invstd = invstd.of[d],
                                .running_mean = r_mean.of[d],
                                .running_var = r_var.of[d],
                                .momentum = 0.1f,
                                .eps = 1e-5f};
        two_kernels(two, d)->norm->batch_norm_merge(&norm, rows.of[d], ranks, found.of[d]);
        assert_true(*(double *)both_read(found, d, sizeof total) == total);
    }
    both_check(mean, 3e-7, "batch_norm_merge mean");
    both_check(invstd, 3e-7, "batch_norm_merge invstd");
    both_check(r_mean, 3e-7, "batch_norm_merge running_mean");
    both_check(r_var, 3e-7, "batch_norm_merge running_var");
    two_free(two);
}

static void test_batch_norm_over_ranks(void **state) {
    TwoDevices *two = *state;
    for (size_t i = 0; i < CASES; i++)
        for (int flags = 0; flags < 8; flags++) check_steps(two, cases[i], flags);
    const float counts[] = {0, 0, 1, 0, 7, 1009, 1, 1 << 20, 0};
    for (size_t c = 0; c < 18; c += c < 3 ? 1 : 7)
        for (size_t first = 0; first < 9; first++)
            for (size_t ranks = 1; first + ranks <= 9; ranks++)
                check_merge(two, c, ranks, counts + first);
    check_merge(two, 1009, 3, (const float[]){5, 0, 12});
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_batch_norm, &two),
        cmocka_unit_test_prestate(test_batch_norm_over_ranks, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
