/* test_kernels_logits.c: padded rows of 16-bit logits, and the kernel that computes their loss,
 * hits and gradient in one pass, against the reference.
 */
#include "tests/rigs/half_tensors.h"

// ---- conversions --------------------------------------------------------------------------------

static void check_rows(TwoDevices *two, Precision p, HalfRows of, bool accumulate) {
    Both x = both_normal(two, of.n * of.columns, 1);
    Both half = half_start(two, p, of.n * of.pitch, accumulate);
    Both wide = both_start(two, of.n * of.columns, accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        k->narrow_rows(p, of, x.of[d], half.of[d], accumulate);
        k->widen_rows(p, of, half.of[d], wide.of[d], accumulate);
    }
    half_check(half, p, 0, "narrow_rows");
    both_check(wide, 0, "widen_rows");
    const uint16_t *stored = both_read(half, TESTED, half.bytes);
    for (size_t i = 0; i < of.n * of.pitch; i++)
        if (i % of.pitch >= of.columns) assert_int_equal(stored[i], 0);
    two_free(two);
}

static void rows(void **state) {
    const HalfRows shapes[] = {{0, 3, 8}, {1, 1, 1}, {7, 5, 8}, {300, 76, 128}, {3, 1000, 1024}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_rows(*state, type_of(*state, i % 2), shapes[i], accumulate);
}

// ---- an output layer with padding ---------------------------------------------------------------

enum { ROWS = 9, OUT = 13, IN = 5, PADDING = 3, COLUMNS = OUT + PADDING };

typedef struct Head {
    Both x, weight, narrow, y, dy, dweight, dx;
} Head;

// in_padding: value of dy in the padding. accumulate: add to dweight.
static void head_run(TwoDevices *two, Precision p, float in_padding, bool accumulate, Head *head) {
    const LinearShape s = {ROWS, OUT, IN, NULL, PADDING};
    float *dy = two_normal(two, ROWS * COLUMNS, 4);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) dy[i] = i % COLUMNS < OUT ? dy[i] : in_padding;
    *head = (Head){.x = half_normal(two, p, ROWS * IN, 1),
                   .weight = both_normal(two, OUT * IN, 2),
                   .narrow = half_start(two, p, linear_narrow_bias(s), true),
                   .y = half_start(two, p, ROWS * COLUMNS, false),
                   .dy = half_floats(two, p, dy, ROWS * COLUMNS),
                   .dweight = both_start(two, OUT * IN, accumulate),
                   .dx = half_start(two, p, ROWS * IN, false)};
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        const Compute how = {p, two_take(two, two->of[d], NULL, k->linear_workspace(p, s))};
        k->narrow_linear(p, s, head->weight.of[d], NULL, head->narrow.of[d]);
        k->linear(how, s, head->x.of[d], head->narrow.of[d], NULL, head->y.of[d]);
        k->linear_weight_gradient(how, s, head->dy.of[d], head->x.of[d],
                                  &(LinearGradient){head->dweight.of[d], NULL, accumulate, false});
        k->linear_input_gradient(how, s, head->dy.of[d], head->narrow.of[d], NULL, head->dx.of[d],
                                 false);
    }
    half_check(head->narrow, p, 0, "narrow_linear");
    half_check(head->y, p, 1, "linear");
    half_check(head->dx, p, 1, "linear_input_gradient");
    both_check(head->dweight, p == PRECISION_F16 ? 0x1p-10 : 1e-6, "linear_weight_gradient");
}

// The padding of y is 0, and the padding of dy contributes to no gradient.
static void heads(void **state) {
    TwoDevices *two = *state;
    Head zero, other;
    for (int flags = 0; flags < 4; flags++) {
        const Precision p = type_of(two, flags & 1);
        head_run(two, p, 0, flags & 2, &zero);
        head_run(two, p, 1000, flags & 2, &other);
        const uint16_t *y = both_read(zero.y, TESTED, zero.y.bytes);
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            if (i % COLUMNS >= OUT) assert_int_equal(y[i] & 0x7fff, 0);
        assert_memory_equal(both_read(zero.dx, TESTED, zero.dx.bytes),
                            both_read(other.dx, TESTED, zero.dx.bytes), zero.dx.bytes);
        assert_memory_equal(both_read(zero.dweight, TESTED, zero.dweight.bytes),
                            both_read(other.dweight, TESTED, zero.dweight.bytes),
                            zero.dweight.bytes);
        two_free(two);
    }
}

// ---- loss, hits and the logits' gradient --------------------------------------------------------

// Random logits, large in the padding. In every second row the label has the largest logit; in some
// of these rows an equal logit is at another position.
static void make_logits(float *logits, int64_t *labels, HalfRows of) {
    for (size_t i = 0; i < of.n * of.pitch; i++) logits[i] *= 20;
    for (size_t row = 0; row < of.n; row++) {
        float *x = logits + row * of.pitch;
        size_t label = rng_below(2, RNG_STREAM_TEST, row, of.columns);
        labels[row] = (int64_t)label;
        if (row % 2) x[label] = 120;
        if (row % 6 == 3) x[rng_below(3, RNG_STREAM_TEST, row, of.columns)] = 120;
        for (size_t j = of.columns; j < of.pitch; j++) x[j] = 1000;
    }
}

static void check_loss(TwoDevices *two, Precision p, HalfRows of, bool gradient) {
    float *values = two_normal(two, of.n * of.pitch, 1);
    int64_t *labels = two_take(two, NULL, NULL, of.n * sizeof *labels);
    make_logits(values, labels, of);
    Both logits = half_floats(two, p, values, of.n * of.pitch);
    uint16_t *before = two_take(two, NULL, NULL, logits.bytes);
    memcpy(before, both_read(logits, TESTED, logits.bytes), logits.bytes);
    Both target = both_bytes(two, labels, of.n * sizeof *labels);
    Both loss = both_start(two, 1, false), correct = both_bytes(two, NULL, sizeof(int64_t));
    for (int d = 0; d < DEVICES; d++) {
        const HalfLogits call = {.precision = p,
                                 .labels = {target.of[d], of.n, of.columns},
                                 .pitch = of.pitch,
                                 .logits = logits.of[d],
                                 .divisor = 0.125, // keeps gradients above fp16's smallest number
                                 .gradient = gradient};
        two_kernels(two, d)->halves->cross_entropy(&call, loss.of[d], correct.of[d]);
    }
    both_check(loss, 1e-6, "cross_entropy");
    both_check_bytes(correct, "hits");
    half_check(logits, p, gradient ? 0.5 : 0, "the gradient in place of the logits");
    const uint16_t *after = both_read(logits, TESTED, logits.bytes);
    for (size_t i = 0; gradient && i < of.n * of.pitch; i++)
        if (i % of.pitch >= of.columns) assert_int_equal(after[i], 0);
    if (!gradient) assert_memory_equal(after, before, logits.bytes);
    two_free(two);
}

// Rows computed by a warp or by a block; with vectors (in registers up to 16384 elements) or
// without.
static void losses(void **state) {
    const HalfRows shapes[] = {{0, 10, 10},       {1, 1, 1},          {700, 10, 16},
                               {33, 1024, 1024},  {9, 1025, 1025},    {5, 1025, 1152},
                               {6, 1500, 1500},   {1040, 2000, 2048}, {3, 2001, 2048},
                               {2, 16385, 16512}, {2, 40001, 40064}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int p = type_of(*state, false); p <= PRECISION_F16; p++)
            for (int gradient = 0; gradient < 2; gradient++)
                check_loss(*state, (Precision)p, shapes[i], gradient);
}

// NaN, an overflowed row and invalid labels, in both kinds of rows.
static void odd_logits(void **state) {
    TwoDevices *two = *state;
    enum { ODD = 5 };
    const size_t pitches[] = {16, 2048};
    for (size_t i = 0; i < 2; i++) {
        const HalfRows of = {ODD, pitches[i] - 3, pitches[i]};
        const Precision p = type_of(two, false);
        float *values = two_normal(two, ODD * of.pitch, 1);
        int64_t labels[ODD] = {0, 1, 2, -1, (int64_t)of.columns};
        values[0] = 50;                  // a hit
        values[of.pitch + 1] = INFINITY; // a hit: infinity is the largest logit
        values[2 * of.pitch + 2] = 50;
        values[2 * of.pitch + of.columns - 1] = NAN;
        Both logits = half_floats(two, p, values, ODD * of.pitch);
        Both target = both_bytes(two, labels, sizeof labels);
        Both loss = both_start(two, 1, false), correct = both_bytes(two, NULL, sizeof(int64_t));
        for (size_t row = 0; row < ODD; row++) {
            HalfLogits call = {p,        {(int64_t *)target.of[TESTED] + row, 1, of.columns},
                               of.pitch, (uint16_t *)logits.of[TESTED] + row * of.pitch,
                               1,        false};
            two_kernels(two, TESTED)
                ->halves->cross_entropy(&call, loss.of[TESTED], correct.of[TESTED]);
            const float *found = both_read(loss, TESTED, sizeof *found);
            assert_int_equal(isnan(*found) != 0, row > 0);
            const int64_t *hits = both_read(correct, TESTED, sizeof *hits);
            assert_int_equal(*hits, row < 2);
        }
        two_free(two);
    }
}

int main(int argc, char **argv) {
    TwoDevices two = half_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows, &two),
        cmocka_unit_test_prestate(heads, &two),
        cmocka_unit_test_prestate(losses, &two),
        cmocka_unit_test_prestate(odd_logits, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
