/* test_kernels_transformer.c: embedding, layer norm, activations and attention of a device (the CPU
 * by default, or the argument) against the reference; and the CPU's exp: its accuracy, and equal
 * bits for every instruction set.
 */
#include "tests/rigs/two_devices.h"

#include "common/device/cpu/exponential.h"

// ---- exp ----------------------------------------------------------------------------------------

#if defined(__x86_64__)
#define FOR(instructions) __attribute__((target(instructions), noinline))
#else
#define FOR(instructions) __attribute__((noinline))
#endif
#define EXPONENTIALS(name, instructions)                                                  \
    FOR(instructions) static void name(float *y, const float *x, size_t count) {          \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) y[i] = exponential(x[i]); \
    }
EXPONENTIALS(with_sse2, "sse2")
EXPONENTIALS(with_avx2, "avx2")
EXPONENTIALS(with_avx512, "avx512f")

static bool has(const char *instructions) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return strcmp(instructions, "avx2") == 0 ? __builtin_cpu_supports("avx2")
                                             : __builtin_cpu_supports("avx512f");
#else
    (void)instructions;
    return false;
#endif
}

enum { RUN = 1021 };

static void check_exponentials(const float *x) {
    float y[RUN], other[RUN];
    with_sse2(y, x, RUN);
    if (has("avx2")) with_avx2(other, x, RUN), assert_memory_equal(y, other, sizeof y);
    if (has("avx512f")) with_avx512(other, x, RUN), assert_memory_equal(y, other, sizeof y);
    for (size_t i = 0; i < RUN; i++) {
        double exact = exp((double)x[i]);
        bool inside = fabsf(x[i]) < 87.3f;
        if (isnan(x[i]) ? !isnan(y[i])
            : inside    ? !(fabs((double)y[i] / exact - 1) <= 1.7e-7) // 1.4 units in the last place
                        : !(x[i] < 0 ? y[i] <= 1.3e-38f : y[i] >= 8e37f))
            fail_msg("exp(%a): %a, exactly %a", (double)x[i], (double)y[i], exact);
    }
}

// Every 4099th of all float bit patterns.
static void exponentials_are_exact_and_alike(void **state) {
    (void)state;
    float x[RUN];
    for (uint64_t bits = 0; bits < UINT32_MAX; bits += (uint64_t)4099 * RUN) {
        for (size_t i = 0; i < RUN; i++) {
            uint32_t word = (uint32_t)(bits + 4099 * i);
            memcpy(&x[i], &word, sizeof word);
        }
        check_exponentials(x);
    }
    assert_true(exponential(-INFINITY) == 0 && exponential(INFINITY) == INFINITY);
    assert_true(exponential(0) == 1 && exponential(-0.0f) == 1 && exponential(-100) == 0);
}

// ---- embedding ----------------------------------------------------------------------------------

static Both random_tokens(TwoDevices *two, size_t rows, size_t vocabulary, bool some_are_none) {
    int64_t *tokens = two_take(two, NULL, NULL, rows * sizeof *tokens);
    for (size_t i = 0; i < rows; i++)
        tokens[i] = (int64_t)rng_below(3, RNG_STREAM_TEST, i, (vocabulary + 1) / 2);
    if (some_are_none && rows > 2) tokens[1] = -1, tokens[2] = (int64_t)vocabulary;
    return both_bytes(two, tokens, rows * sizeof *tokens);
}

static void check_embedding(TwoDevices *two, Embedding of, bool add) {
    Both tokens = random_tokens(two, of.rows, of.vocabulary, false);
    Both holes = random_tokens(two, of.rows, of.vocabulary, true);
    size_t table = of.vocabulary * of.channels, positions = of.length * of.channels;
    Both wte = both_normal(two, table, 1), wpe = both_normal(two, positions, 2);
    Both dy = both_normal(two, of.rows * of.channels, 3);
    Both y = both_start(two, of.rows * of.channels, false);
    Both dwte = both_start(two, table, add), dwpe = both_start(two, positions, add);
    for (int d = 0; d < DEVICES; d++) {
        const TransformerKernels *k = two_kernels(two, d)->transformer;
        of.tokens = tokens.of[d];
        k->embedding(&of, wte.of[d], wpe.of[d], y.of[d]);
        of.tokens = holes.of[d]; // rows of unused tokens get no gradient
        void *workspace = two_take(two, two->of[d], NULL, k->embedding_workspace(&of));
        k->embedding_gradient(&of, dy.of[d], dwte.of[d], add, workspace);
        k->position_gradient(&of, dy.of[d], dwpe.of[d], add);
    }
    both_check(y, 1e-7, "embedding");
    both_check(dwte, 1e-6, "embedding_gradient");
    both_check(dwpe, 1e-6, "position_gradient");
    two_free(two);
}

static void test_embedding(void **state) {
    const Embedding cases[] = {{NULL, 0, 3, 5, 4},       {NULL, 6, 3, 5, 0},
                               {NULL, 3, 3, 1, 1},       {NULL, 35, 7, 11, 17},
                               {NULL, 96, 8, 76, 33},    {NULL, 1030, 103, 5, 9},
                               {NULL, 520, 260, 300, 70}};
    TwoDevices *two = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int add = 0; add < 2; add++) check_embedding(two, cases[i], add);
}

static void a_token_that_is_none_makes_its_row_nan(void **state) {
    TwoDevices *two = *state;
    const int64_t tokens[] = {1, -1, 2, 0};
    const float table[] = {1, 2, 3, 4};
    Both ids = both_bytes(two, tokens, sizeof tokens), y = both_start(two, 8, false);
    Both wte = both_floats(two, table, 4), wpe = both_floats(two, table, 4);
    for (int d = 0; d < DEVICES; d++) {
        Embedding of = {ids.of[d], 4, 2, 2, 2};
        two_kernels(two, d)->transformer->embedding(&of, wte.of[d], wpe.of[d], y.of[d]);
        const float *rows = both_read(y, d, y.bytes);
        assert_true(rows[0] == 4 && rows[1] == 6 && rows[6] == 4 && rows[7] == 6);
        for (int i = 2; i < 6; i++) assert_true(isnan(rows[i]));
    }
    two_free(two);
}

// ---- layer norm, activations --------------------------------------------------------------------

static void check_layer_norm(TwoDevices *two, size_t rows, size_t channels, int flags) {
    bool add = flags & 1, want_dx = flags & 2, want_dw = flags & 4, want_db = flags & 8;
    size_t count = rows * channels;
    float *values = two_normal(two, count, 1);
    for (size_t i = 0; i < count; i++) values[i] = 3 + 2 * values[i];
    Both x = both_floats(two, values, count), dy = both_normal(two, count, 2);
    Both weight = both_normal(two, channels, 3), bias = both_normal(two, channels, 4);
    Both mean = both_start(two, rows, false), invstd = both_start(two, rows, false);
    Both y = both_start(two, count, false), dx = both_start(two, count, add || !want_dx);
    Both dw = both_start(two, channels, add || !want_dw);
    Both db = both_start(two, channels, add || !want_db);
    for (int d = 0; d < DEVICES; d++) {
        const TransformerKernels *k = two_kernels(two, d)->transformer;
        LayerNorm norm = {x.of[d],    rows,       channels,     weight.of[d],
                          bias.of[d], mean.of[d], invstd.of[d], 1e-5f};
        k->layer_norm(&norm, y.of[d]);
        const NormGradient to = {want_dx ? dx.of[d] : NULL,
                                 want_dw ? dw.of[d] : NULL,
                                 want_db ? db.of[d] : NULL,
                                 add,
                                 add,
                                 add};
        k->layer_norm_gradient(&norm, dy.of[d], &to);
    }
    both_check(mean, 1e-6, "layer_norm mean");
    both_check(invstd, 1e-6, "layer_norm invstd");
    both_check(y, 2e-6, "layer_norm");
    both_check(dx, 3e-6, "layer_norm dx");
    both_check(dw, 1e-6, "layer_norm dweight");
    both_check(db, 1e-6, "layer_norm dbias");
    two_free(two);
}

static void test_layer_norm(void **state) {
    const size_t cases[][2] = {{0, 5},   {3, 3},    {7, 17},   {33, 64},
                               {5, 129}, {67, 768}, {301, 35}, {2, 1600}};
    TwoDevices *two = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int flags = 0; flags < 16; flags++)
            check_layer_norm(two, cases[i][0], cases[i][1], flags);
}

static void check_activation(TwoDevices *two, Activation f, size_t count, int way) {
    float *values = two_normal(two, count, 1);
    for (size_t j = 0; j < count; j++) values[j] *= 4;
    Both x = both_floats(two, values, count), y = both_start(two, count, false);
    Both dy = both_normal(two, count, 2), dx = both_start(two, count, way == 1);
    if (way == 2) dx = both_output(two, two_normal(two, count, 2), count);
    for (int d = 0; d < DEVICES; d++) {
        const ElementwiseKernels *k = two_kernels(two, d)->elementwise;
        k->activation(f, y.of[d], x.of[d], count, false);
        assert_memory_equal(both_read(x, d, count * sizeof *values), values,
                            count * sizeof *values);
        k->activation(f, y.of[d], x.of[d], count, true); // x becomes the saved values
        k->activation_gradient(f, dx.of[d], x.of[d], way == 2 ? dx.of[d] : dy.of[d], count,
                               way == 1);
    }
    both_check(y, 1e-6, "activation");
    both_check(dx, 4e-6, "activation_gradient");
    two_free(two);
}

static void test_activations(void **state) {
    const size_t counts[] = {0, 1, 7, 16, 17, 1009, 70001};
    for (int f = 0; f < ACTIVATIONS; f++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int way = 0; way < 3; way++) // overwrite, accumulate, in place
                check_activation(*state, (Activation)f, counts[i], way);
}

// Far from 0, GELU is x or 0 and its derivative 1 or 0; NaN stays NaN.
static void gelu_of_large_numbers(void **state) {
    TwoDevices *two = *state;
    const float values[] = {-1e12f, -4000, -30, 30, 4000, 1e12f, NAN, INFINITY};
    enum { COUNT = sizeof values / sizeof *values };
    const float ones[COUNT] = {1, 1, 1, 1, 1, 1, 1, 1};
    Both x = both_bytes(two, values, sizeof values), dy = both_bytes(two, ones, sizeof ones);
    Both y = both_start(two, COUNT, false), dx = both_start(two, COUNT, false);
    const ElementwiseKernels *k = two_kernels(two, TESTED)->elementwise;
    k->activation(ACTIVATION_GELU, y.of[TESTED], x.of[TESTED], COUNT, true);
    k->activation_gradient(ACTIVATION_GELU, dx.of[TESTED], x.of[TESTED], dy.of[TESTED], COUNT,
                           false);
    const float *result = both_read(y, TESTED, y.bytes), *slope = both_read(dx, TESTED, dx.bytes);
    for (int i = 0; i < 3; i++) assert_true(result[i] == 0 && slope[i] == 0);
    for (int i = 3; i < 6; i++) assert_true(result[i] == values[i] && slope[i] == 1);
    assert_true(isnan(result[6]) && isnan(slope[6]) && result[7] == INFINITY);
    two_free(two);
}

// ---- attention ----------------------------------------------------------------------------------

static void check_attention(TwoDevices *two, Attention of, Precision precision, bool add) {
    size_t count = of.batch * of.length * of.heads * of.size;
    Both qkv = both_normal(two, 3 * count, 1), dy = both_normal(two, count, 2);
    Both y = both_start(two, count, false), dqkv = both_start(two, 3 * count, add);
    for (int d = 0; d < DEVICES; d++) {
        const TransformerKernels *k = two_kernels(two, d)->transformer;
        void *saved = two_take(two, two->of[d], NULL, k->attention_saved(&of));
        size_t room = k->attention_workspace(precision, &of);
        Compute how = {precision, two_take(two, two->of[d], NULL, room)};
        k->attention(how, &of, qkv.of[d], y.of[d], saved);
        k->attention_gradient(how, &of, qkv.of[d], y.of[d], saved, dy.of[d], dqkv.of[d], add);
    }
    // In 16 bits a sum midway between two numbers may be rounded to either.
    double bound = precision == PRECISION_F32 ? 3e-6 : precision == PRECISION_F16 ? 2e-3 : 1.6e-2;
    both_check(y, bound, "attention");
    both_check(dqkv, bound, "attention_gradient");
    two_free(two);
}

static void test_attention(void **state) {
    const Attention cases[] = {{0, 5, 2, 4},   {2, 0, 2, 4},    {1, 1, 1, 1},  {2, 5, 3, 7},
                               {1, 63, 2, 16}, {3, 64, 1, 32},  {1, 65, 2, 8}, {2, 131, 3, 5},
                               {1, 70, 2, 64}, {1, 200, 1, 33}, {1, 9, 1, 128}};
    TwoDevices *two = *state;
    int last = two_kernels(two, TESTED)->halves ? PRECISION_F32 : PRECISION_F16;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int add = 0; add < 2; add++)
            for (int p = PRECISION_F32; p <= last; p++)
                check_attention(two, cases[i], (Precision)p, add);
}

// Large scores: the maximum must be subtracted before exp.
static void attention_does_not_overflow(void **state) {
    TwoDevices *two = *state;
    const Attention of = {1, 40, 1, 4};
    float *values = two_normal(two, 40 * 12, 1);
    for (size_t i = 0; i < 40 * 12; i++) values[i] *= 30;
    Both qkv = both_floats(two, values, 40 * 12), y = both_start(two, 40 * 4, false);
    for (int d = 0; d < DEVICES; d++) {
        const TransformerKernels *k = two_kernels(two, d)->transformer;
        Compute how = {PRECISION_F32,
                       two_take(two, two->of[d], NULL, k->attention_workspace(PRECISION_F32, &of))};
        void *saved = two_take(two, two->of[d], NULL, k->attention_saved(&of));
        k->attention(how, &of, qkv.of[d], y.of[d], saved);
    }
    both_check(y, 1e-3, "attention of large scores"); // float's spacing at 5000 is 5e-4
    two_free(two);
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    if (!two_kernels(&two, TESTED)->transformer) {
        print_message("%s has no kernels for a transformer\n", two.of[TESTED]->name);
        two_close(&two);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponentials_are_exact_and_alike),
        cmocka_unit_test_prestate(test_embedding, &two),
        cmocka_unit_test_prestate(a_token_that_is_none_makes_its_row_nan, &two),
        cmocka_unit_test_prestate(test_layer_norm, &two),
        cmocka_unit_test_prestate(test_activations, &two),
        cmocka_unit_test_prestate(gelu_of_large_numbers, &two),
        cmocka_unit_test_prestate(test_attention, &two),
        cmocka_unit_test_prestate(attention_does_not_overflow, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
