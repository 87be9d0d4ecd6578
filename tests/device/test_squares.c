/* test_squares.c: the exact sum of squares used by gradient clipping, of a device (the CPU by
 * default, or the argument) against the reference, whose sums are compared with integers here. Sums
 * must be equal bit for bit, so all limbs are compared.
 *
 * A device adds elements whose exponents lie in a window per block, and other elements one by one:
 * inputs lie inside, outside and at both ends of such windows.
 */
#include "tests/rigs/two_devices.h"

enum { PARTS_MAX = 7 };

typedef struct Sum {
    int64_t of[SQUARES_SIZE];
} Sum;

// Returns the device's sum of squares of the slices (device memory), added to `start` if not NULL.
static Sum squares_of(TwoDevices *two, int d, const Slice *slices, size_t count, const Sum *start) {
    Sum sum;
    memset(&sum, 0x77, sizeof sum);
    Both memory = both_bytes(two, start ? start : &sum, sizeof sum);
    two_kernels(two, d)->slices->squares(slices, count, start != NULL, memory.of[d]);
    device_copy(NULL, &sum, two->of[d], memory.of[d], sizeof sum);
    return sum;
}

static double norm_of(TwoDevices *two, int d, const Sum *sum) {
    double norm;
    Both memory = both_bytes(two, sum, sizeof *sum), result = both_bytes(two, NULL, sizeof norm);
    two_kernels(two, d)->slices->clip(NULL, 0, 1, memory.of[d], result.of[d]);
    device_copy(NULL, &norm, two->of[d], result.of[d], sizeof norm);
    return norm;
}

static void check_equal(const Sum *a, const Sum *b, const char *what) {
    for (int k = 0; k < SQUARES_SIZE; k++)
        if (a->of[k] != b->of[k])
            fail_msg("%s: entry %d is %jd in one sum and %jd in the other", what, k,
                     (intmax_t)a->of[k], (intmax_t)b->of[k]);
}

// Returns the sum of squares of x[count]; asserts that it is equal on both devices, for the whole
// and for parts.
static Sum check_sum(TwoDevices *two, const float *x, size_t count, const char *what) {
    Both memory = both_floats(two, x, count);
    const Slice whole[] = {{memory.of[REF], count}};
    const Sum expected = squares_of(two, REF, whole, 1, NULL);
    for (int k = 0; k < SQUARES_LIMBS; k++)
        assert_true(expected.of[k] >= 0 && (expected.of[k] >> 32 == 0 || k == SQUARES_LIMBS - 1));
    const double norm = norm_of(two, REF, &expected);
    for (size_t parts = 1; parts <= PARTS_MAX; parts += 3) {
        Sum sum = {{0}}, accumulated = {{0}};
        for (size_t p = 0; p < parts; p++) { // in reverse order
            const size_t begin = count * (parts - 1 - p) / parts, end = count * (parts - p) / parts;
            const Slice part[] = {{(float *)memory.of[TESTED] + begin, end - begin}, {NULL, 0}};
            const Sum own = squares_of(two, TESTED, part, 2, NULL);
            accumulated = squares_of(two, TESTED, part, 2, &accumulated);
            for (int k = 0; k < SQUARES_SIZE; k++) sum.of[k] += own.of[k];
        }
        check_equal(&accumulated, &expected, what);
        const double same = norm_of(two, TESTED, &sum); // with carries pending
        assert_memory_equal(&same, &norm, isnan(norm) ? 0 : sizeof norm);
        assert_int_equal(isnan(same), isnan(norm));
    }
    two_free(two);
    return expected;
}

static float *zeros(TwoDevices *two, size_t count) {
    float *x = two_take(two, NULL, NULL, count * sizeof *x);
    memset(x, 0, count * sizeof *x);
    return x;
}

// ---- tests -------------------------------------------------------------------------------------

// Integers below 2^12 have exact squares, whose sum is an integer.
static void test_integers(void **state) {
    TwoDevices *two = *state;
    const size_t counts[] = {0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 4096, 4097, 70001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t total = 0;
        float *x = zeros(two, counts[i]);
        for (size_t k = 0; k < counts[i]; k++) {
            const int value = (int)(rng_u64(i, RNG_STREAM_TEST, k) % 8191) - 4095;
            total += (uint64_t)(value * value);
            x[k] = (float)value;
        }
        two->shift = i % 2;
        const Sum sum = check_sum(two, x, counts[i], "integers");
        for (int k = 0; k < SQUARES_SIZE; k++) { // bit 149 has the value 1
            const uint64_t limb = k == 4   ? total << 21 & UINT32_MAX
                                  : k == 5 ? total >> 11 & UINT32_MAX
                                  : k == 6 ? total >> 43
                                           : 0;
            assert_int_equal(sum.of[k], limb);
        }
        assert_true(norm_of(two, TESTED, &sum) == sqrt((double)total));
        two_free(two);
    }
}

// The largest element is each power of two, and another element is smaller by each factor.
static void test_distances(void **state) {
    TwoDevices *two = *state;
    enum { COUNT = 64 };
    for (int top = 63; top >= -70; top -= 7)
        for (int below = 0; below < 60; below++) {
            float *x = zeros(two, COUNT);
            for (int k = 0; k < COUNT; k++)
                x[k] = k == 40 ? ldexpf(1.25f, top - below) : k % 2 ? ldexpf(1.75f, top) : 0;
            check_sum(two, x, COUNT, "distance");
        }
}

// Random bits: half of the blocks contain every exponent, the others a few.
static void test_any_bits(void **state) {
    TwoDevices *two = *state;
    enum { COUNT = 9001 };
    for (uint64_t round = 0; round < 6; round++) {
        float *x = zeros(two, COUNT);
        for (size_t k = 0; k < COUNT; k++) {
            uint32_t bits = (uint32_t)rng_u64(round, RNG_STREAM_TEST, k);
            if (k / 1024 % 2 == round % 2) bits = (bits & 0x87ffffff) | 0x30000000;
            if ((bits >> 23 & 255) > 190) bits &= 0x9fffffff; // squares must not overflow
            memcpy(&x[k], &bits, sizeof bits);
        }
        const Sum sum = check_sum(two, x, COUNT, "any bits");
        assert_true(sum.of[SQUARES_INF] == 0 && sum.of[SQUARES_NAN] == 0);
    }
}

// Squares of float32 are 0 below 2^-75 and infinite from 2^64 on: both neighbours of each limit.
static void test_ends(void **state) {
    TwoDevices *two = *state;
    const float largest = nextafterf(0x1p64f, 0), least = nextafterf(0x1p-75f, 1);
    const struct {
        float x;
        double norm;
    } cases[] = {
        {largest, sqrt((double)(largest * largest))},
        {0x1p64f, INFINITY},
        {-3e38f, INFINITY},
        {-INFINITY, INFINITY},
        {NAN, NAN},
        {-NAN, NAN},
        {0x1p-75f, 0}, // 2^-150 is rounded to even
        {least, sqrt(0x1p-149)},
        {1e-45f, 0},
        {-0.0f, 0},
        {0x1p-74f, 0x1p-74},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t count = 1; count < 8000; count += 2 * count + 30) {
            float *x = zeros(two, count);
            x[count / 2] = cases[i].x;
            const Sum sum = check_sum(two, x, count, "end");
            const double norm = norm_of(two, TESTED, &sum);
            assert_true(norm == cases[i].norm || (isnan(norm) && isnan(cases[i].norm)));
            two_free(two);
        }
}

// A sum with NaN and infinity is NaN, in any order.
static void test_not_finite(void **state) {
    TwoDevices *two = *state;
    enum { COUNT = 5000 };
    float *x = two_normal(two, COUNT, 1);
    x[17] = INFINITY, x[4999] = -INFINITY, x[2000] = 1e30f;
    const Sum infinite = check_sum(two, x, COUNT, "infinite");
    assert_true(infinite.of[SQUARES_INF] == 3 && infinite.of[SQUARES_NAN] == 0);
    x = two_normal(two, COUNT, 1);
    x[17] = INFINITY, x[3] = NAN;
    const Sum both = check_sum(two, x, COUNT, "infinite and NaN");
    assert_true(both.of[SQUARES_INF] == 1 && both.of[SQUARES_NAN] == 1);
    assert_true(isnan(norm_of(two, TESTED, &both)));
    two_free(two);
}

// Sums that need every limb: 2^40 times the largest square, by repeated doubling.
static void test_growth(void **state) {
    TwoDevices *two = *state;
    float *x = zeros(two, 1);
    x[0] = 0x1.8p63f;
    Sum sum = check_sum(two, x, 1, "growth");
    for (int k = 0; k < 40; k++) {
        for (int limb = 0; limb < SQUARES_LIMBS; limb++) sum.of[limb] *= 2;
        sum = squares_of(two, TESTED, NULL, 0, &sum); // propagates carries
    }
    assert_true(norm_of(two, TESTED, &sum) == 0x1.8p83);
    two_free(two);
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_integers, &two),
        cmocka_unit_test_prestate(test_distances, &two),
        cmocka_unit_test_prestate(test_any_bits, &two),
        cmocka_unit_test_prestate(test_ends, &two),
        cmocka_unit_test_prestate(test_not_finite, &two),
        cmocka_unit_test_prestate(test_growth, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
