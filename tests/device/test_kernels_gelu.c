/* test_kernels_gelu.c: a 16-bit linear layer with GELU, and its gradient, against the reference.
 * cuBLASLt fuses both if rows have a multiple of 8 elements; other sizes use separate kernels.
 */
#include "tests/rigs/half_tensors.h"

typedef struct Layer {
    LinearShape shape;
    Precision precision;
    Both x, weight, bias, narrow, before, y;
    void *workspace[DEVICES];
} Layer;

static Layer layer_open(TwoDevices *two, Precision p, const size_t sizes[3]) {
    const LinearShape s = {sizes[0], sizes[1], sizes[2], NULL, 0};
    Layer l = {.shape = s,
               .precision = p,
               .x = half_normal(two, p, s.rows * s.in, 1),
               .weight = both_normal(two, s.out * s.in, 2),
               .bias = both_normal(two, s.out, 3),
               .narrow = half_start(two, p, linear_narrow_count(s), true),
               .before = half_start(two, p, s.rows * s.out, false),
               .y = half_start(two, p, s.rows * s.out, false)};
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        l.workspace[d] = two_take(two, two->of[d], NULL, k->linear_workspace(p, s));
        k->narrow_linear(p, s, l.weight.of[d], l.bias.of[d], l.narrow.of[d]);
    }
    return l;
}

static void layer_run(const TwoDevices *two, int d, const Layer *l) {
    two_kernels(two, d)->halves->linear_gelu((Compute){l->precision, l->workspace[d]}, l->shape,
                                             l->x.of[d], l->narrow.of[d], l->bias.of[d],
                                             (HalfGelu){l->before.of[d], l->y.of[d]});
}

// The gradient of a layer with NEXT outputs that follows a GELU; both devices have the same GELU
// input.
static void check_gradient(TwoDevices *two, const Layer *l) {
    enum { NEXT = 5 };
    const LinearShape s = {l->shape.rows, NEXT, l->shape.out, NULL, 0};
    Both before = half_normal(two, l->precision, s.rows * s.in, 4);
    Both dy = half_normal(two, l->precision, s.rows * NEXT, 5);
    Both weight = half_normal(two, l->precision, NEXT * s.in, 6);
    Both dbefore = half_start(two, l->precision, s.rows * s.in, false);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->halves->linear_gelu_gradient((Compute){l->precision, l->workspace[d]},
                                                          s, dy.of[d], weight.of[d], before.of[d],
                                                          dbefore.of[d]);
    half_check(dbefore, l->precision, 2, "linear_gelu_gradient");
}

static void layers(void **state) {
    const size_t sizes[][3] = {{1, 8, 1},   {7, 13, 5}, {33, 150, 40}, {64, 136, 257},
                               {9, 24, 31}, {0, 8, 3},  {5, 0, 3},     {5, 8, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int p = type_of(*state, false); p <= PRECISION_F16; p++) {
            const Layer l = layer_open(*state, (Precision)p, sizes[i]);
            for (int d = 0; d < DEVICES; d++) layer_run(*state, d, &l);
            half_check(l.before, l.precision, 2, "linear_gelu, before");
            half_check(l.y, l.precision, 2, "linear_gelu");
            check_gradient(*state, &l);
            two_free(*state);
        }
}

// NaN must propagate through cuBLASLt's GELU.
static void a_layer_keeps_nan(void **state) {
    enum { ROWS = 4, OUT = 16, IN = 8 };
    TwoDevices *two = *state;
    Layer l = layer_open(two, type_of(two, false), (size_t[]){ROWS, OUT, IN});
    float *values = two_normal(two, ROWS * IN, 1);
    values[2 * IN + 3] = NAN; // makes row 2 NaN
    l.x = half_floats(two, l.precision, values, ROWS * IN);
    layer_run(two, TESTED, &l);
    const uint16_t *y = both_read(l.y, TESTED, l.y.bytes);
    for (size_t i = 0; i < (size_t)ROWS * OUT; i++)
        if ((i / OUT == 2) != (bool)isnan(from_half(l.precision, y[i])))
            fail_msg("y[%zu] is %g", i, (double)from_half(l.precision, y[i]));
    two_free(two);
}

int main(int argc, char **argv) {
    TwoDevices two = half_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(layers, &two),
        cmocka_unit_test_prestate(a_layer_keeps_nan, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
