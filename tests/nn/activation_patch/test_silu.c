/* test_silu.c: SiLU of a tree with silu.patch against PyTorch's formula in double precision, x s,
 * and its derivative s (1 + x (1 - s)), where s = sigmoid(x): in float32 on both kernel tables of
 * the host, and in bfloat16 on ref.
 */
#include "tests/rigs/check.h"

#include <math.h>

#include "common/nn/ops_half.h"

enum { COUNT = 401 };

static float input(int i) {
    return (float)(i - COUNT / 2) / 16; // -12.5 to 12.5
}

static Tensor *inputs(Tape *tape) {
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = input(i);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, COUNT}, values);
    x->requires_grad = true;
    return x;
}

// Runs forward and backward of silu(x), with 16-bit precision of silu(half(x)), from a gradient of
// ones.
static void check(const char *device_name, Precision precision, double bound) {
    Error err = {0};
    Device *device = device_open(device_name, &err);
    CHECK_OK(device, err);
    Tape *tape = tape_create(device, NULL);
    tape->recording = true;
    tape->precision = precision;
    Tensor *x = inputs(tape);
    Tensor *of = precision == PRECISION_F32 ? x : op_half(tape, x);
    Tensor *y = op_float32(tape, op_activation(tape, ACTIVATION_SILU, of));
    float result[COUNT], slope[COUNT];
    device_copy(NULL, result, device, tensor_f32(y), sizeof result);
    float *dy = tape_make_grad(tape, y);
    device_kernels(device)->elementwise->fill(dy, 1, COUNT);
    CHECK(tape_backward(tape, y, &err) == 0, "%s", err.message);
    device_copy(NULL, slope, device, x->grad, sizeof slope);
    for (int i = 0; i < COUNT; i++) {
        double v = (double)input(i), s = 1 / (1 + exp(-v));
        assert_true(fabs((double)result[i] - v * s) <= bound * (1 + fabs(v)));
        assert_true(fabs((double)slope[i] - s * (1 + v * (1 - s))) <= bound);
    }
    tape_close(tape);
    device_close(device);
}

// The bound is a few roundings, each at most 2^-24 (float32), or one more of at most 2^-9
// (bfloat16).
static void silu_is_pytorchs(void **state) {
    (void)state;
    check("cpu:0", PRECISION_F32, 1e-6);
    check("ref:0", PRECISION_F32, 1e-7);
    check("ref:0", PRECISION_BF16, 1.0 / 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(silu_is_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
