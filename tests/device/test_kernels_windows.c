/* test_kernels_windows.c: convolution and pooling kernels of a device (the CPU by default, or the
 * argument) against the reference.
 */
#include "tests/rigs/two_devices.h"

static bool window_fits(Window *v) {
    if (v->h + 2 * v->pad < v->kernel || v->w + 2 * v->pad < v->kernel) return false;
    v->oh = (v->h + 2 * v->pad - v->kernel) / v->stride + 1;
    v->ow = (v->w + 2 * v->pad - v->kernel) / v->stride + 1;
    return true;
}

static void check_conv2d(TwoDevices *two, Precision precision, const Window *v, bool with_bias,
                         bool accumulate) {
    size_t inputs = v->n * v->c * v->h * v->w, outputs = v->n * v->k * v->oh * v->ow;
    size_t weights = v->k * v->c * v->kernel * v->kernel;
    Both x = both_normal(two, inputs, 1), w = both_normal(two, weights, 2);
    Both bias = both_normal(two, v->k, 3), dy = both_normal(two, outputs, 4);
    Both y = both_start(two, outputs, false), dx = both_start(two, inputs, accumulate);
    Both dw = both_start(two, weights, accumulate), db = both_start(two, v->k, accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        size_t room = (k->convolution->conv2d_workspace(precision, v) + 3) / sizeof(float);
        Both space = both_output(two, two_normal(two, room, 5), room);
        k->convolution->conv2d((Compute){precision, space.of[d]}, v, x.of[d], w.of[d],
                               with_bias ? bias.of[d] : NULL, y.of[d]);
        k->convolution->conv2d_input_gradient((Compute){precision, space.of[d]}, v, w.of[d],
                                              dy.of[d], dx.of[d], accumulate);
        k->convolution->conv2d_weight_gradient((Compute){precision, space.of[d]}, v, x.of[d],
                                               dy.of[d], dw.of[d], accumulate);
        k->convolution->conv2d_bias_gradient(v, dy.of[d], db.of[d], accumulate);
        both_check_guards(space, d, "conv2d_workspace");
    }
    bool f32 = precision == PRECISION_F32; // 16-bit sums may be rounded to either neighbour
    // Sums of up to 873 products, which cuDNN adds sequentially.
    both_check(y, f32 ? 2e-6 : 8e-3, "conv2d");
    both_check(dx, f32 ? 2e-6 : 8e-3, "conv2d_input_gradient");
    // Sums over thousands of pixels, in float.
    both_check(dw, f32 ? 4e-6 : 8e-3, "conv2d_weight_gradient");
    both_check(db, 2e-7, "conv2d_bias_gradient");
    two_free(two);
}

static void check_pools(TwoDevices *two, const Window *v, bool accumulate) {
    size_t inputs = v->n * v->c * v->h * v->w, outputs = v->n * v->c * v->oh * v->ow;
    float *values = two_normal(two, inputs, 1);
    for (size_t i = 0; i < inputs; i++) values[i] = roundf(values[i]); // many equal values
    Both x = both_floats(two, values, inputs), dy = both_normal(two, outputs, 2);
    Both max = both_start(two, outputs, false), dmax = both_start(two, inputs, accumulate);
    Both avg = both_start(two, outputs, false), davg = both_start(two, inputs, accumulate);
    Both chosen = both_bytes(two, NULL, outputs * sizeof(int32_t));
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->convolution->max_pool(v, x.of[d], max.of[d], chosen.of[d]);
        k->convolution->max_pool_gradient(v, chosen.of[d], dy.of[d], dmax.of[d], accumulate);
        k->convolution->avg_pool(v, x.of[d], avg.of[d]);
        k->convolution->avg_pool_gradient(v, dy.of[d], davg.of[d], accumulate);
    }
    both_check_bytes(chosen, "max_pool's choice");
    both_check(max, 0, "max_pool");
    both_check(dmax, 2e-7, "max_pool_gradient"); // several windows may choose the same pixel
    both_check(avg, 2e-7, "avg_pool");
    both_check(davg, 1e-6, "avg_pool_gradient");
    two_free(two);
}

static void test_windows(void **state) {
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
            check_conv2d(*state, PRECISION_F32, &v, flags & 1, flags & 2);
        v.k = v.c;
        for (int accumulate = 0; accumulate < 2 && 2 * v.pad <= v.kernel; accumulate++)
            check_pools(*state, &v, accumulate);
        checked++;
    }
    assert_true(checked > 200);
}

// Windows of 2 x 2 with stride 2 have their own loop, which processes four outputs at a time:
// widths around multiples of four, edges outside all windows, NaN.
static void test_common_pools(void **state) {
    TwoDevices *two = *state;
    for (size_t i = 0; i < 3 * 10 * 4; i++) {
        Window v = {.n = i % 3, .c = 3, .h = i / 30 + 2, .w = i / 3 % 10 + 2, .k = 3, .kernel = 2};
        v.stride = 2;
        assert_true(window_fits(&v));
        check_pools(two, &v, i % 2);
        size_t inputs = v.n * v.c * v.h * v.w, outputs = v.n * v.c * v.oh * v.ow;
        float *values = two_normal(two, inputs, 1);
        for (size_t j = 0; j < inputs; j++) values[j] = j % 3 == 0 ? NAN : roundf(values[j]);
        Both x = both_floats(two, values, inputs);
        Both y = both_bytes(two, NULL, outputs * sizeof(float));
        Both chosen = both_bytes(two, NULL, outputs * sizeof(int32_t));
        for (int d = 0; d < DEVICES; d++)
            two_kernels(two, d)->convolution->max_pool(&v, x.of[d], y.of[d], chosen.of[d]);
        both_check_bytes(chosen, "max_pool's choice with NaN");
        both_check_bytes(y, "max_pool with NaN");
        two_free(two);
    }
}

// Channels that fill vectors and that do not, and images that the CPU splits into bands of rows,
// whose edges must fit.
static void test_large_windows(void **state) {
    Window windows[] = {
        {.n = 2, .c = 16, .h = 32, .w = 32, .k = 16, .kernel = 3, .stride = 1, .pad = 1},
        {.n = 2, .c = 16, .h = 33, .w = 31, .k = 32, .kernel = 3, .stride = 2, .pad = 1},
        {.n = 1, .c = 33, .h = 17, .w = 16, .k = 32, .kernel = 1, .stride = 1, .pad = 0},
        {.n = 1, .c = 64, .h = 32, .w = 32, .k = 17, .kernel = 1, .stride = 1, .pad = 0},
        {.n = 1, .c = 2, .h = 5, .w = 701, .k = 3, .kernel = 5, .stride = 1, .pad = 2},
        {.n = 1, .c = 8, .h = 40, .w = 24, .k = 33, .kernel = 5, .stride = 3, .pad = 0},
        {.n = 1, .c = 97, .h = 23, .w = 41, .k = 2, .kernel = 3, .stride = 1, .pad = 1},
        {.n = 2, .c = 61, .h = 38, .w = 67, .k = 3, .kernel = 3, .stride = 2, .pad = 0},
        {.n = 1, .c = 3, .h = 29, .w = 43, .k = 90, .kernel = 3, .stride = 1, .pad = 2},
        {.n = 2, .c = 3, .h = 14, .w = 14, .k = 48, .kernel = 7, .stride = 2, .pad = 3},
        // A band's memory on the CPU holds 2 rows of outputs, and 1; a window spans 2 more.
        {.n = 2, .c = 64, .h = 5, .w = 300, .k = 2, .kernel = 3, .stride = 1, .pad = 1},
        {.n = 1, .c = 64, .h = 5, .w = 500, .k = 2, .kernel = 3, .stride = 1, .pad = 1},
    };
    // Devices that store 16-bit images convolve in 16 bits only in test_kernels_halves.
    int last = two_kernels(*state, TESTED)->halves ? PRECISION_F32 : PRECISION_F16;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        assert_true(window_fits(&windows[i]));
        for (int accumulate = 0; accumulate < 2; accumulate++)
            for (int p = PRECISION_F32; p <= (i < 2 ? last : PRECISION_F32); p++)
                check_conv2d(*state, (Precision)p, &windows[i], true, accumulate);
    }
}

static void test_shortcut(void **state) {
    TwoDevices *two = *state;
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
        Both x = both_normal(two, inputs, 1), dy = both_normal(two, outputs, 2);
        Both y = both_start(two, outputs, false), dx = both_start(two, inputs, accumulate);
        for (int d = 0; d < DEVICES; d++) {
            const Kernels *k = two_kernels(two, d);
            k->convolution->shortcut(&v, x.of[d], y.of[d]);
            k->convolution->shortcut_gradient(&v, dy.of[d], dx.of[d], accumulate);
        }
        both_check(y, 0, "shortcut");
        both_check(dx, 0, "shortcut_gradient");
        two_free(two);
    }
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_windows, &two),
        cmocka_unit_test_prestate(test_common_pools, &two),
        cmocka_unit_test_prestate(test_large_windows, &two),
        cmocka_unit_test_prestate(test_shortcut, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
