/* test_kernels_lists.c: kernels for lists of tensors, scalars and 16-bit numbers: small results
 * computed by hand, for both of the CPU's tables; and the tables' descriptions of themselves.
 */
#include "common/device/cpu/kernels.h"
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include "common/device/kernels.h"

enum { TABLES = 2 };

static const Kernels *table(int which) {
    return which == 0 ? &kernels_cpu : &kernels_ref;
}

static void test_describe(void **state) {
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        Error err = {0};
        char text[200] = "";
        CHECK_OK(table(t)->prepare(&err) == 0, err);
        table(t)->describe(text, sizeof text);
        assert_true(strlen(text) > 8);
        print_message("%s: %s\n", table(t)->name, text);
        // Kernels compute in the caller's thread, in the host's memory.
        assert_true(table(t)->is_cpu && table(t)->is_synchronous && table(t)->is_addressable);
        table(t)->describe(text, 5); // truncated to the buffer
        assert_int_equal(strlen(text), 4);
    }
}

// The description has the library's name, version and core, then its number of threads and the
// user's choice.
static void test_describe_blas(void **state) {
    (void)state;
    const char *chosen = getenv("OPENBLAS_CORETYPE");
    for (int threads = 2; threads >= 1; threads--) {
        Error err = {0};
        char text[200], version[20], core[30], flavour[20], counted[20], setting[60];
        int end = 0;
        CHECK_OK(cpu_use_threads(threads, &err) == 0, err);
        if (threads == 1) setenv("OPENBLAS_CORETYPE", "Chosen", 1);
        cpu_describe(text, sizeof text);
        assert_int_equal(sscanf(text,
                                "OpenBLAS %19[0-9.] %29[^,], %19[^,], %19[^,], OPENBLAS_CORETYPE "
                                "%59[^;]%n",
                                version, core, flavour, counted, setting, &end),
                         5);
        assert_true(strcmp(flavour, "pthread") == 0 || strcmp(flavour, "OpenMP") == 0);
        assert_string_equal(counted, threads == 1 ? "1 thread" : "2 threads");
        assert_string_equal(text + end,
                            threads == 1 && product_runs_here() ? "; products by AVX-512" : "");
        assert_string_equal(setting, threads == 1 ? "Chosen" : chosen ? chosen : "unset");
    }
    chosen ? setenv("OPENBLAS_CORETYPE", chosen, 1) : unsetenv("OPENBLAS_CORETYPE");
}

static void test_lists(void **state) {
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        float a[] = {1, 2, 3}, b[] = {4, 5, 6, 7, 8}, packed[9], flag = 0, y[2] = {10, 20};
        const Slice slices[] = {{a, 3}, {NULL, 0}, {b, 5}};
        int64_t counter = 41;
        table(t)->slices->unscale(slices, 3, 0.5f, &flag);
        assert_true(flag == 0 && a[2] == 1.5f && b[4] == 4);
        packed[8] = -1;
        table(t)->slices->pack(packed, slices, 3);
        assert_true(packed[0] == 0.5f && packed[3] == 2 && packed[7] == 4 && packed[8] == -1);
        for (int i = 0; i < 8; i++) packed[i] += 1;
        table(t)->slices->unpack(slices, 3, packed);
        assert_true(a[0] == 1.5f && b[0] == 3 && b[4] == 5);
        table(t)->elementwise->spread(y, a, 3, true, 2); // 1.5 / 3
        assert_true(y[0] == 10.5f && y[1] == 20.5f);
        table(t)->elementwise->spread(y, a, 0, false, 2); // an empty batch
        assert_true(y[0] == 0 && y[1] == 0);
        table(t)->elementwise->count_up(&counter);
        assert_int_equal(counter, 42);
        for (int i = 0; i < 2; i++) {
            b[1] = i ? NAN : INFINITY, flag = 0;
            table(t)->slices->unscale(slices, 3, 0.5f, &flag);
            assert_true(flag == 1);
        }
    }
}

static void test_clip(void **state) {
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        float a[] = {1, -2, 2}, b[17] = {[3] = 4};
        const Slice slices[] = {{a, 3}, {NULL, 0}, {b, 17}};
        double norm;
        int64_t sum[SQUARES_SIZE];
        table(t)->slices->squares(slices, 3, false, sum);
        table(t)->slices->clip(slices, 3, 5.1, sum, &norm);
        assert_true(norm == 5 && a[0] == 1 && b[3] == 4); // below the limit: unchanged
        table(t)->slices->clip(slices, 3, 2.5, sum, &norm);
        check_close((double)a[1], -1, 1e-6, "clipped");
        check_close((double)b[3], 2, 1e-6, "clipped");
        float tiny[] = {3e-7f, -4e-7f}; // the 1e-6 added to the norm is twice the norm
        table(t)->slices->squares(&(Slice){tiny, 2}, 1, false, sum);
        table(t)->slices->clip(&(Slice){tiny, 2}, 1, 3e-7, sum, &norm);
        check_close((double)tiny[0] * 1e8, 6, 1e-6, "clipped of next to nothing");
        check_close((double)tiny[1] * 1e8, -8, 1e-6, "clipped of next to nothing");
        b[16] = NAN;
        table(t)->slices->squares(slices, 3, false, sum);
        table(t)->slices->clip(slices, 3, 100, sum, &norm);
        assert_true(isnan(norm) && isnan(a[0]) && isnan(b[0]));
        table(t)->slices->squares(NULL, 0, false, sum);
        table(t)->slices->clip(NULL, 0, 1, sum, &norm);
        assert_true(norm == 0);
    }
}

static void test_halves(void **state) {
    (void)state;
    const float values[] = {0, -0.0f, 1, 1.0f / 3, 65504, 65536, 1e-7f, -3e38f};
    for (int t = 0; t < TABLES; t++)
        for (int p = PRECISION_BF16; p <= PRECISION_F16; p++) {
            uint16_t narrow[8];
            float wide[8];
            table(t)->elementwise->narrow((Precision)p, narrow, values, 8);
            table(t)->elementwise->widen((Precision)p, wide, narrow, 8);
            assert_true(wide[2] == 1 && signbit(wide[1]) &&
                        (isinf(wide[5]) != 0) == (p == PRECISION_F16));
            check_close((double)wide[3], 1.0 / 3, p == PRECISION_F16 ? 3e-4 : 3e-3, "third");
            assert_true((isinf(wide[7]) != 0) == (p == PRECISION_F16));
        }
}

// Classes and tokens are [0, 3): the kernels give NaN for others, count no row of theirs, and add
// nothing for them to a gradient.
static void test_labels_out_of_range(void **state) {
    (void)state;
    enum { CLASSES = 3, ROWS = 3 };
    const int64_t labels[] = {0, CLASSES - 1, CLASSES, INT64_MAX, -1, INT64_MIN};
    const float logits[(ROWS + 1) * CLASSES] = {9, 0, 9, 9, 0, 9, 9, 0, 9, 7, 7, 7};
    for (int t = 0; t < TABLES; t++)
        for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
            const bool is_class = i < 2;
            const int64_t target[ROWS] = {0, labels[i], 2}, tokens[ROWS] = {2, labels[i], 2};
            const Labels of = {target, ROWS, CLASSES};
            const Embedding embedding = {tokens, ROWS, ROWS, CLASSES, 1};
            // Each with a value behind it, which no kernel may write.
            float p[ROWS * CLASSES + 1], hot[ROWS * CLASSES + 1], losses[ROWS + 1], y[ROWS + 1];
            float dwte[CLASSES + 1], dwpe[ROWS + 1], loss;
            p[ROWS * CLASSES] = hot[ROWS * CLASSES] = 77;
            losses[ROWS] = y[ROWS] = dwte[CLASSES] = dwpe[ROWS] = 77;
            int64_t correct;
            table(t)->loss->cross_entropy(of, logits, 1, p, &loss);
            assert_true(isfinite(loss) == is_class && isfinite(p[4]));
            table(t)->loss->count_correct(of, logits, &correct);
            assert_int_equal(correct, 1 + (i == 0)); // the first of equals
            table(t)->loss->one_hot(target, hot, ROWS, CLASSES);
            assert_true(hot[0] == 1 && hot[1] == 0 && hot[8] == 1);
            for (size_t c = 0; c < CLASSES; c++)
                assert_true(is_class ? hot[3 + c] == ((int64_t)c == labels[i]) : isnan(hot[3 + c]));
            table(t)->pixels->pixel_cross_entropy((PixelLabels){target, 1, CLASSES, ROWS}, logits,
                                                  p, losses);
            assert_true(labels[i] < 0 ? losses[1] == 0 : isfinite(losses[1]) == is_class);
            assert_true(isfinite(losses[0]) && isfinite(losses[2]));
            const uint8_t kept[ROWS] = {1, labels[i] >= 0, 1};
            float dlogits[ROWS * CLASSES];
            table(t)->pixels->pixel_cross_entropy_gradient((PixelLabels){target, 1, CLASSES, ROWS},
                                                           p, kept, (float[]){1}, dlogits, false);
            for (size_t c = 0; c < CLASSES; c++)
                assert_true(dlogits[c * ROWS + 1] ==
                            (kept[1] ? p[c * ROWS + 1] - ((int64_t)c == labels[i]) : 0));
            table(t)->transformer->embedding(&embedding, (float[]){1, 2, 3}, (float[]){10, 20, 30},
                                             y);
            assert_true(y[0] == 13 && y[2] == 33);
            assert_true(is_class ? y[1] == 21 + (float)labels[i] : isnan(y[1]));
            table(t)->transformer->embedding_gradient(&embedding, (float[]){1, 2, 4}, dwte, false,
                                                      NULL);
            assert_true(dwte[0] == (i == 0 ? 2 : 0) && dwte[1] == 0 && dwte[2] == (i == 1 ? 7 : 5));
            table(t)->transformer->position_gradient(&embedding, (float[]){1, 2, 4}, dwpe, false);
            assert_true(dwpe[0] == 1 && dwpe[1] == (is_class ? 2 : 0) && dwpe[2] == 4);
            assert_true(p[ROWS * CLASSES] == 77 && hot[ROWS * CLASSES] == 77 && losses[ROWS] == 77);
            assert_true(y[ROWS] == 77 && dwte[CLASSES] == 77 && dwpe[ROWS] == 77);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe), cmocka_unit_test(test_describe_blas),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_clip),
        cmocka_unit_test(test_halves),   cmocka_unit_test(test_labels_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
