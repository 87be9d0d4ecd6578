/* test_generation.c: a token is drawn as often as its probability says. (tests/programs/text.sh
 * compares what whole models write.)
 */
#include "tests/rigs/check.h"

#include <math.h>

#include "common/train/run.h"

static void parts_of_the_unit_interval(void **state) {
    (void)state;
    // Probabilities 1/6, 2/6, 0, 3/6. A constant that all logits have in common changes nothing.
    for (float shift = -80; shift < 100; shift += 80) {
        const float logits[] = {shift, shift + logf(2), -INFINITY, shift + logf(3)};
        assert_int_equal(generation_draw(logits, 4, 0), 0);
        assert_int_equal(generation_draw(logits, 4, 0.16), 0);
        assert_int_equal(generation_draw(logits, 4, 0.17), 1);
        assert_int_equal(generation_draw(logits, 4, 0.49), 1);
        assert_int_equal(generation_draw(logits, 4, 0.51), 3);
        assert_int_equal(generation_draw(logits, 4, 1 - 0x1p-24), 3);
        assert_int_equal(generation_draw(logits, 1, 0.9), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_the_unit_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
