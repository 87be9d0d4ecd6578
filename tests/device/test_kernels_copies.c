/* test_kernels_copies.c: an optimizer step that also writes 16-bit copies of the parameters, on the
 * device given as argument; "cpu" has no 16-bit tensors and is skipped.
 */
#include "tests/rigs/half_tensors.h"

// Sizes of a list's tensors: aligned to vectors and not, empty, longer than a block's share.
static const size_t COUNTS[] = {8, 1, 0, 6, 4101, 3, 40};
enum { TENSORS = sizeof COUNTS / sizeof *COUNTS, TOTAL = 8 + 1 + 6 + 4101 + 3 + 40 };

static bool has_copy(size_t tensor) {
    return tensor % 4 != 3;
}

// all: the list's tensors, concatenated.
static void step(const Kernels *kernels, bool adam, Precision p, AdamTensor all) {
    SgdTensor sgd[TENSORS];
    AdamTensor list[TENSORS];
    for (size_t i = 0, at = 0; i < TENSORS; at += COUNTS[i++]) {
        uint16_t *copy = has_copy(i) ? all.copy + at : NULL;
        list[i] = (AdamTensor){all.weight + at,
                               all.gradient + at,
                               all.exp_avg + at,
                               all.exp_avg_sq + at,
                               all.scalars,
                               COUNTS[i],
                               copy};
        sgd[i] = (SgdTensor){
            list[i].weight, list[i].gradient, list[i].exp_avg, all.scalars, true, COUNTS[i], copy};
    }
    const AdamConfig how = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .copies = p};
    const SgdConfig config = {.momentum = 0.9, .copies = p};
    if (adam)
        kernels->optimizer->adam(&how, list, TENSORS, NULL);
    else
        kernels->optimizer->sgd(&config, sgd, TENSORS, NULL);
}

static void check_copies(TwoDevices *two, bool adam, Precision p) {
    float squares[TOTAL];
    for (size_t i = 0; i < TOTAL; i++) squares[i] = 0.5f;
    Both w = both_start(two, TOTAL, true), gradient = both_normal(two, TOTAL, 1);
    Both m = both_start(two, TOTAL, true), v = both_output(two, squares, TOTAL);
    Both scalars = both_floats(two, (const float[SCALARS]){0.1f, 0.99f, 0.1f, 0.5f}, SCALARS);
    Both copies = half_start(two, p, TOTAL, true);
    const uint16_t *before = both_read(copies, REF, copies.bytes);
    for (int d = 0; d < DEVICES; d++) {
        step(two_kernels(two, d), adam, p,
             (AdamTensor){w.of[d], gradient.of[d], m.of[d], v.of[d], scalars.of[d], TOTAL,
                          copies.of[d]});
        const float *weights = both_read(w, d, w.bytes);
        const uint16_t *copy = both_read(copies, d, copies.bytes);
        for (size_t i = 0, at = 0; i < TENSORS; at += COUNTS[i++])
            for (size_t j = at; j < at + COUNTS[i]; j++)
                assert_int_equal(copy[j], has_copy(i) ? to_half(p, weights[j]) : before[j]);
    }
    both_check(w, 1e-6, "weights of a step with copies");
    two_free(two);
}

static void copies(void **state) {
    for (int p = type_of(*state, false); p <= PRECISION_F16; p++)
        for (int adam = 0; adam < 2; adam++) check_copies(*state, adam, (Precision)p);
}

int main(int argc, char **argv) {
    TwoDevices two = half_open(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(copies, &two)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
