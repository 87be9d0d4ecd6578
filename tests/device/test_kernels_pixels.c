/* test_kernels_pixels.c: the kernels of dense prediction: small results computed by hand (for both
 * of the CPU's tables), the reference's gradients against central differences, and a device (the
 * CPU by default, or the argument) against the reference, for sizes 0, 1, primes and one more than
 * a block.
 */
#include "common/device/device_backend.h"
#include "tests/rigs/two_devices.h"

static const Kernels *const TABLES[] = {&kernels_ref, &kernels_cpu};
enum { TABLE_COUNT = sizeof TABLES / sizeof *TABLES };

static float *normal(size_t count, uint64_t which) {
    float *x = memory_zalloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rng_normal(which, RNG_STREAM_TEST, i);
    return x;
}

// Random classes; about every third label is ignored.
static int64_t *labels(size_t count, size_t classes) {
    int64_t *target = memory_zalloc((count + 1) * sizeof *target);
    for (size_t i = 0; i < count; i++)
        target[i] = rng_below(9, RNG_STREAM_TEST, 2 * i, 3) == 0
                        ? -1
                        : (int64_t)rng_below(9, RNG_STREAM_TEST, 2 * i + 1, classes);
    return target;
}

// ---- upsampling -------------------------------------------------------------------------------

static void upsampling_known_answers(void **state) {
    (void)state;
    for (int t = 0; t < TABLE_COUNT; t++) {
        const float x[] = {1, 2, 3, 4}; // two planes of 1x2
        const float wanted[] = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
        float y[16], dx[4] = {10, 20, 30, 40};
        TABLES[t]->pixels->upsample2x(x, y, 2, 1, 2);
        assert_memory_equal(y, wanted, sizeof wanted);
        const float dy[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
        const float sums[] = {14, 22, 46, 54}, more[] = {28, 44, 92, 108};
        TABLES[t]->pixels->upsample2x_gradient(dy, dx, false, 2, 1, 2);
        assert_memory_equal(dx, sums, sizeof sums);
        TABLES[t]->pixels->upsample2x_gradient(dy, dx, true, 2, 1, 2);
        assert_memory_equal(dx, more, sizeof more);
    }
}

static void upsampling_agrees_with_reference(void **state) {
    TwoDevices *two = *state;
    const size_t sides[] = {0, 1, 2, 7, 17, 33};
    for (int i = 0; i < 6 * 6 * 3 * 2; i++) {
        size_t h = sides[i % 6], w = sides[i / 6 % 6], planes = (size_t)(i / 36 % 3);
        size_t count = planes * h * w;
        Both x = both_normal(two, count, 1), dy = both_normal(two, 4 * count, 2);
        Both y = both_start(two, 4 * count, false), dx = both_start(two, count, i >= 108);
        for (int d = 0; d < DEVICES; d++) {
            const Kernels *k = two_kernels(two, d);
            k->pixels->upsample2x(x.of[d], y.of[d], planes, h, w);
            k->pixels->upsample2x_gradient(dy.of[d], dx.of[d], i >= 108, planes, h, w);
        }
        both_check(y, 0, "upsample2x");
        both_check(dx, 2e-7, "upsample2x_gradient");
        two_free(two);
    }
}

// ---- cross-entropy of pixels ------------------------------------------------------------------

static void cross_entropy_known_answers(void **state) {
    (void)state;
    for (int t = 0; t < TABLE_COUNT; t++) {
        // One image, 2 classes, 3 pixels: classes are planes. Exponentials of the last pixel would
        // overflow.
        const float logits[] = {0, 0, 1000, logf(3), 0, 1000 + logf(3)};
        const int64_t target[] = {1, -1, 0};
        float p[6], losses[3], dx[6];
        TABLES[t]->pixels->pixel_cross_entropy((PixelLabels){target, 1, 2, 3}, logits, p, losses);
        check_close((double)p[0], 0.25, 1e-6, "p");
        check_close((double)p[1], 0.5, 1e-6, "p of an ignored pixel");
        check_close((double)p[3], 0.75, 1e-6, "p");
        check_close((double)losses[0], -log(0.75), 1e-6, "loss");
        assert_true(losses[1] == 0);
        check_close((double)losses[2], -log(0.25), 1e-4, "loss of large logits");
        const uint8_t kept[] = {1, 0, 0};
        TABLES[t]->pixels->pixel_cross_entropy_gradient((PixelLabels){target, 1, 2, 3}, p, kept,
                                                        (const float[]){2}, dx, false);
        const float gradient[] = {0.5f, 0, 0, -0.5f, 0, 0};
        for (int i = 0; i < 6; i++)
            check_close((double)dx[i], (double)gradient[i], 1e-6, "gradient");
    }
}

static double kept_sum(const float *logits, const int64_t *target, const uint8_t *kept, size_t n,
                       size_t classes, size_t inner) {
    float *p = normal(n * classes * inner, 3), *losses = normal(n * inner, 4);
    kernels_ref.pixels->pixel_cross_entropy((PixelLabels){target, n, classes, inner}, logits, p,
                                            losses);
    double sum = 0;
    for (size_t i = 0; i < n * inner; i++) sum += kept[i] ? (double)losses[i] : 0;
    free(p);
    free(losses);
    return sum;
}

static void reference_gradient_matches_differences(void **state) {
    (void)state;
    enum { N = 2, CLASSES = 3, INNER = 5, COUNT = N * CLASSES * INNER };
    float *logits = normal(COUNT, 1), p[COUNT], losses[N * INNER], dx[COUNT];
    int64_t *target = labels(N * INNER, CLASSES);
    uint8_t kept[N * INNER];
    float sum;
    int64_t keep;
    kernels_ref.pixels->pixel_cross_entropy((PixelLabels){target, N, CLASSES, INNER}, logits, p,
                                            losses);
    kernels_ref.pixels->hard_pixels(
        &(HardPixels){
            .losses = losses, .target = target, .count = N * INNER, .threshold = 0.8f, .least = 0},
        kept, &keep, &sum);
    assert_in_range(keep, 2, N * INNER - 3); // some are kept, others are easy or ignored
    kernels_ref.pixels->pixel_cross_entropy_gradient((PixelLabels){target, N, CLASSES, INNER}, p,
                                                     kept, (const float[]){1}, dx, false);
    for (size_t i = 0; i < COUNT; i++) {
        const float step = 1.0f / 64;
        float was = logits[i];
        logits[i] = was + step;
        double above = kept_sum(logits, target, kept, N, CLASSES, INNER);
        logits[i] = was - step;
        double below = kept_sum(logits, target, kept, N, CLASSES, INNER);
        logits[i] = was;
        check_close((double)dx[i], (above - below) / (2 * (double)step), 1e-3, "gradient");
    }
    free(logits);
    free(target);
}

static void compare_cross_entropy(TwoDevices *two, size_t n, size_t classes, size_t inner,
                                  bool accumulate) {
    size_t count = n * classes * inner, pixels = n * inner;
    float *values = two_normal(two, count, 1);
    int64_t *wanted = labels(pixels, classes);
    uint8_t *chosen = two_take(two, NULL, NULL, pixels);
    for (size_t i = 0; i < pixels; i++) chosen[i] = wanted[i] >= 0 && i % 3 > 0;
    for (size_t i = 0; i < count; i++) values[i] *= 20; // some probabilities underflow
    Both logits = both_floats(two, values, count), kept = both_bytes(two, chosen, pixels);
    Both target = both_bytes(two, wanted, pixels * sizeof *wanted);
    Both upstream = both_floats(two, (const float[]){0.3f}, 1);
    Both p = both_start(two, count, false), losses = both_start(two, pixels, false);
    Both dx = both_start(two, count, accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->pixels->pixel_cross_entropy((PixelLabels){target.of[d], n, classes, inner}, logits.of[d],
                                       p.of[d], losses.of[d]);
        k->pixels->pixel_cross_entropy_gradient((PixelLabels){target.of[d], n, classes, inner},
                                                p.of[d], kept.of[d], upstream.of[d], dx.of[d],
                                                accumulate);
    }
    both_check(p, 1e-6, "probabilities");
    both_check(losses, 1e-6, "losses");
    both_check(dx, 1e-6, "gradient");
    free(wanted);
    two_free(two);
}

static void cross_entropy_agrees_with_reference(void **state) {
    const size_t inners[] = {0, 1, 7, 33, 256, 257, 1009};
    for (int i = 0; i < 7 * 3 * 4 * 2; i++)
        compare_cross_entropy(*state, (size_t)(i / 7 % 3), (size_t[]){1, 2, 5, 17}[i / 21 % 4],
                              inners[i % 7], i >= 84);
}

// ---- hard examples ----------------------------------------------------------------------------

static void mining_known_answers(void **state) {
    (void)state;
    const float losses[] = {0.1f, 0.9f, 0.0f, 0.5f, 0.9f, 0.7f, 0.0f};
    const int64_t target[] = {0, 1, -1, 2, 0, 0, 1}; // the third is ignored, the last has loss 0
    const struct {
        float threshold;
        size_t least, keep;
        double sum;
        uint8_t kept[7];
    } cases[] = {
        {-INFINITY, 0, 6, 3.1, {1, 1, 0, 1, 1, 1, 1}}, // no mining: all labelled pixels
        {0.4f, 0, 4, 3.0, {0, 1, 0, 1, 1, 1, 0}},
        {0.5f, 2, 3, 2.5, {0, 1, 0, 0, 1, 1, 0}},   // strictly above the threshold; enough
        {0.8f, 4, 4, 3.0, {0, 1, 0, 1, 1, 1, 0}},   // too few above it: the 4 hardest
        {5.0f, 1, 1, 0.9, {0, 1, 0, 0, 0, 0, 0}},   // of equal losses the first
        {5.0f, 100, 6, 3.1, {1, 1, 0, 1, 1, 1, 1}}, // fewer pixels than requested: all
        {5.0f, 0, 0, 0.0, {0}},
    };
    for (int t = 0; t < TABLE_COUNT; t++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            uint8_t kept[7] = {9, 9, 9, 9, 9, 9, 9};
            float sum;
            int64_t keep;
            TABLES[t]->pixels->hard_pixels(&(HardPixels){.losses = losses,
                                                         .target = target,
                                                         .count = 7,
                                                         .threshold = cases[i].threshold,
                                                         .least = cases[i].least},
                                           kept, &keep, &sum);
            assert_int_equal(keep, cases[i].keep);
            assert_memory_equal(kept, cases[i].kept, 7);
            check_close((double)sum, cases[i].sum, 1e-6, "sum");
        }
}

static void compare_mining(TwoDevices *two, const float *losses, const int64_t *target,
                           size_t count, float threshold, size_t least) {
    size_t valid = 0;
    bool numbers = true;
    for (size_t i = 0; i < count; i++) {
        valid += target[i] >= 0;
        numbers &= isfinite(losses[i]) != 0;
    }
    Both of_losses = both_floats(two, losses, count), kept = both_bytes(two, NULL, count);
    Both of_target = both_bytes(two, target, count * sizeof *target);
    Both keep = both_bytes(two, NULL, sizeof(int64_t)), sum = both_start(two, 1, false);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->pixels->hard_pixels(&(HardPixels){.losses = of_losses.of[d],
                                                               .target = of_target.of[d],
                                                               .count = count,
                                                               .threshold = threshold,
                                                               .least = least},
                                                 kept.of[d], keep.of[d], sum.of[d]);
    both_check_bytes(kept, "kept");
    both_check_bytes(keep, "how many are kept");
    int64_t found = *(const int64_t *)both_read(keep, TESTED, sizeof found);
    assert_in_range(found, least < valid ? least : valid, valid);
    if (numbers) both_check(sum, 1e-6, "sum of the kept");
    two_free(two);
}

// Many equal losses, among them zeros, NaN and infinity.
static void mining_agrees_with_reference(void **state) {
    enum { COUNT = 101 };
    float losses[COUNT];
    int64_t *target = labels(COUNT, 3);
    for (size_t i = 0; i < COUNT; i++)
        losses[i] = target[i] < 0 ? 0 : (float)rng_below(3, RNG_STREAM_TEST, i, 12) / 8;
    for (int special = 0; special < 2; special++) {
        for (size_t i = 0; special && i < COUNT; i += 25)
            if (target[i] >= 0) losses[i] = i % 2 ? NAN : INFINITY;
        for (size_t least = 0; least <= COUNT + 1; least++)
            for (int level = -1; level < 13; level++)
                compare_mining(*state, losses, target, COUNT,
                               level < 0 ? -INFINITY : (float)level / 8, least);
    }
    free(target);
}

// More pixels than a block, and more than a card processes at once.
static void mining_of_many_agrees_with_reference(void **state) {
    const size_t counts[] = {0, 1, 257, 4099, 300007};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *losses = memory_zalloc((counts[i] + 1) * sizeof *losses);
        int64_t *target = labels(counts[i], 5);
        for (size_t j = 0; j < counts[i]; j++)
            losses[j] = target[j] < 0 ? 0 : fabsf(rng_normal(4, RNG_STREAM_TEST, j));
        compare_mining(*state, losses, target, counts[i], 1, 0);
        // The reference compares all pairs of pixels: quadratic time.
        for (size_t part = 0; counts[i] < 10000 && part < 4; part++)
            compare_mining(*state, losses, target, counts[i], 1, counts[i] * part / 3);
        free(losses);
        free(target);
    }
}

// ---- predictions ------------------------------------------------------------------------------

static void predictions_known_answers(void **state) {
    (void)state;
    for (int t = 0; t < TABLE_COUNT; t++) {
        // 3 classes (rows), 4 pixels: the last class, the first of equal logits, NaN first, NaN
        // last.
        const float logits[] = {1, 2, NAN, 0, 2, 2, 5, 1, 3, 1, 0, NAN};
        const int32_t wanted[] = {2, 0, -1, -1};
        int32_t predicted[4];
        TABLES[t]->pixels->predict_pixels(logits, predicted, 1, 3, 4);
        assert_memory_equal(predicted, wanted, sizeof wanted);
    }
}

static void predictions_agree_with_reference(void **state) {
    TwoDevices *two = *state;
    const size_t inners[] = {0, 1, 7, 257, 1009};
    for (int i = 0; i < 5 * 3 * 3; i++) {
        size_t inner = inners[i % 5], n = (size_t)(i / 5 % 3);
        size_t classes = (size_t[]){1, 2, 7}[i / 15], count = n * classes * inner;
        float *values = two_normal(two, count, 1);
        for (size_t j = 0; j < count; j++) values[j] = j % 97 == 96 ? NAN : roundf(values[j]);
        Both logits = both_floats(two, values, count);
        Both predicted = both_bytes(two, NULL, n * inner * sizeof(int32_t));
        for (int d = 0; d < DEVICES; d++)
            two_kernels(two, d)->pixels->predict_pixels(logits.of[d], predicted.of[d], n, classes,
                                                        inner);
        both_check_bytes(predicted, "predict_pixels");
        two_free(two);
    }
}

// ---- counts -----------------------------------------------------------------------------------

static void counts_known_answers(void **state) {
    (void)state;
    for (int t = 0; t < TABLE_COUNT; t++) {
        // Two hits, one miss, one without prediction; ignored and invalid labels are not counted.
        const int64_t target[] = {0, 0, 0, 1, -1, 2, INT64_MIN, 1};
        const int32_t predicted[] = {0, 0, 1, -1, 1, 0, 0, 0};
        const int64_t wanted[2 * 3] = {2, 1, 0, 1, 0, 1};
        int64_t confusion[2 * 3] = {7, 7, 7, 7, 7, 7};
        TABLES[t]->pixels->count_pixels((PixelLabels){target, 2, 2, 4}, predicted, confusion);
        assert_memory_equal(confusion, wanted, sizeof wanted);
    }
}

static void counts_agree_with_reference(void **state) {
    TwoDevices *two = *state;
    const size_t inners[] = {0, 1, 257, 70001}, classes[] = {1, 2, 33};
    for (size_t i = 0; i < 4 * 3; i++) {
        size_t inner = inners[i % 4], k = classes[i / 4], n = 2;
        int64_t *truth = two_take(two, NULL, NULL, n * inner * sizeof *truth);
        int32_t *said = two_take(two, NULL, NULL, n * inner * sizeof *said);
        for (size_t j = 0; j < n * inner; j++) {
            truth[j] = (int64_t)rng_below(5, RNG_STREAM_TEST, j, k + 2) - 1; // includes -1 and k
            said[j] = (int32_t)rng_below(6, RNG_STREAM_TEST, j, k + 1) - 1;
        }
        Both target = both_bytes(two, truth, n * inner * sizeof *truth);
        Both predicted = both_bytes(two, said, n * inner * sizeof *said);
        Both confusion = both_bytes(two, NULL, k * (k + 1) * sizeof(int64_t));
        for (int d = 0; d < DEVICES; d++)
            two_kernels(two, d)->pixels->count_pixels((PixelLabels){target.of[d], n, k, inner},
                                                      predicted.of[d], confusion.of[d]);
        both_check_bytes(confusion, "count_pixels");
        two_free(two);
    }
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(upsampling_known_answers),
        cmocka_unit_test_prestate(upsampling_agrees_with_reference, &two),
        cmocka_unit_test(cross_entropy_known_answers),
        cmocka_unit_test(reference_gradient_matches_differences),
        cmocka_unit_test_prestate(cross_entropy_agrees_with_reference, &two),
        cmocka_unit_test(mining_known_answers),
        cmocka_unit_test_prestate(mining_agrees_with_reference, &two),
        cmocka_unit_test_prestate(mining_of_many_agrees_with_reference, &two),
        cmocka_unit_test(predictions_known_answers),
        cmocka_unit_test_prestate(predictions_agree_with_reference, &two),
        cmocka_unit_test(counts_known_answers),
        cmocka_unit_test_prestate(counts_agree_with_reference, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
