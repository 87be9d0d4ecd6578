/* test_kernels_padded.c: the reference's kernels for padded 16-bit rows: small results computed by
 * hand. (On a GPU the padding aligns the logits of a large vocabulary; test_kernels_logits compares
 * its kernels with these.)
 */
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/base/half.h"
#include "common/base/memory.h"

// All values are exact in 16 bits: small integers and halves.
static uint16_t half_of(Precision p, float x) {
    return p == PRECISION_F16 ? half_to_f16(x) : half_to_bf16(x);
}

static void check_floats(const float x[6], const float wanted[6]) {
    for (int i = 0; i < 6; i++) assert_true(x[i] == wanted[i]);
}

static void check_halves(Precision p, const uint16_t *x, size_t count, const float *wanted) {
    for (size_t i = 0; i < count; i++)
        if (x[i] != half_of(p, wanted[i])) fail_msg("element %zu is %#x", i, x[i]);
}

static void test_padded_rows(void **state) {
    (void)state;
    const HalfKernels *k = kernels_ref.halves;
    const HalfRows rows = {.n = 2, .columns = 3, .pitch = 5};
    const float x[6] = {1, 2, 3, -4, 5, 0.5f};
    for (Precision p = PRECISION_BF16; p <= PRECISION_F16; p++) {
        uint16_t y[10];
        for (int i = 0; i < 10; i++) y[i] = half_of(p, 7);
        k->narrow_rows(p, rows, x, y, false);
        check_halves(p, y, 10, (const float[]){1, 2, 3, 0, 0, -4, 5, 0.5f, 0, 0});
        k->narrow_rows(p, rows, x, y, true);
        check_halves(p, y, 10, (const float[]){2, 4, 6, 0, 0, -8, 10, 1, 0, 0});
        float back[6] = {9, 9, 9, 9, 9, 9};
        k->widen_rows(p, rows, y, back, false);
        check_floats(back, (const float[]){2, 4, 6, -8, 10, 1});
        k->widen_rows(p, rows, y, back, true);
        check_floats(back, (const float[]){4, 8, 12, -16, 20, 2});
    }
}

// Loss and gradient of padded logits equal those without padding.
static void test_padded_logits(void **state) {
    (void)state;
    const float logits[6] = {1, 3, 2, -1, 0.5f, 0};
    const int64_t target[2] = {1, 2};
    for (Precision p = PRECISION_BF16; p <= PRECISION_F16; p++) {
        uint16_t padded[10], packed[6];
        float loss[2] = {0};
        int64_t correct[2] = {0};
        kernels_ref.halves->narrow_rows(p, (HalfRows){2, 3, 5}, logits, padded, false);
        kernels_ref.halves->narrow_rows(p, (HalfRows){2, 3, 3}, logits, packed, false);
        for (int i = 0; i < 2; i++) {
            const HalfLogits of = {p, {target, 2, 3}, i ? 3 : 5, i ? packed : padded, 4, true};
            kernels_ref.halves->cross_entropy(&of, &loss[i], &correct[i]);
        }
        assert_true(loss[0] == loss[1] && loss[0] > 0);
        assert_true(correct[0] == 1 && correct[1] == 1);
        for (size_t i = 0; i < 10; i++)
            assert_int_equal(padded[i], i % 5 < 3 ? packed[i / 5 * 3 + i % 5] : half_of(p, 0));
        check_close((double)half_from_bf16(packed[0]) * (p == PRECISION_BF16),
                    p == PRECISION_BF16 ? exp(1) / (exp(1) + exp(3) + exp(2)) / 4 : 0, 1e-3, "p/4");
    }
}

// Three outputs and two columns of padding: values in dy's padding have no effect.
static void test_padded_linear(void **state) {
    (void)state;
    const HalfKernels *k = kernels_ref.halves;
    const LinearShape shape = {.rows = 2, .out = 3, .in = 2, .padding = 2};
    const float weight[6] = {1, 2, 3, 4, 5, 6}, bias[3] = {7, 8, 9}, x[4] = {1, -1, 2, 0.5f};
    const float dy[10] = {1, 2, 3, 50, 60, -1, 0, 2, 70, 80};
    for (Precision p = PRECISION_BF16; p <= PRECISION_F16; p++) {
        const size_t begin = linear_narrow_bias(shape);
        uint16_t narrow[32], in[4], out[10], gradient[10], dx[4];
        assert_true(begin == 16 && linear_narrow_count(shape) == 19);
        for (int i = 0; i < 32; i++) narrow[i] = half_of(p, 99);
        k->narrow_linear(p, shape, weight, bias, narrow);
        check_halves(p, narrow, 10, (const float[]){1, 2, 3, 4, 5, 6, 0, 0, 0, 0});
        check_halves(p, narrow + begin, 4, (const float[]){7, 8, 9, 99});
        for (int i = 0; i < 4; i++) in[i] = half_of(p, x[i]);
        for (int i = 0; i < 10; i++) gradient[i] = half_of(p, dy[i]);
        float *room = memory_zalloc(k->linear_workspace(p, shape) + 1);
        const Compute how = {p, room};
        k->linear(how, shape, in, narrow, NULL, out);
        check_halves(p, out, 10, (const float[]){-1, -1, -1, 0, 0, 3, 8, 13, 0, 0});
        float dweight[6] = {1, 1, 1, 1, 1, 1};
        const LinearGradient to = {.dweight = dweight, .add_dweight = true};
        k->linear_weight_gradient(how, shape, gradient, in, &to);
        check_floats(dweight, (const float[]){0, -0.5f, 3, -1, 8, -1}); // 1 + dy' x
        k->linear_input_gradient(how, shape, gradient, narrow, NULL, dx, false);
        check_halves(p, dx, 4, (const float[]){22, 28, 9, 10});
        k->linear_input_gradient(how, shape, gradient, narrow, NULL, dx, true);
        check_halves(p, dx, 4, (const float[]){44, 56, 18, 20});
        free(room);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padded_rows),
        cmocka_unit_test(test_padded_logits),
        cmocka_unit_test(test_padded_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
