/* test_clock.c: times to the nanosecond: the kernel's clock stands still here. */
#include "tests/rigs/check.h"

#include <stdbool.h>
#include <time.h>

#include "common/base/clock.h"

static struct timespec now;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    assert_int_equal(clock, CLOCK_MONOTONIC);
    *time = now;
    return 0;
}

static const uint64_t NOW_NS = 5000000007; // 5 s and 7 ns

static void times_are_exact(void **state) {
    (void)state;
    static const struct {
        double seconds;
        uint64_t after_ns;
    } cases[] = {
        {0, 0},
        {-1, 0},
        {(double)NAN, 0},
        {1e-9, 1},
        {1.5, 1500000000},
        {1e9, 1000000000000000000},
        {1.1e9, 1000000000000000000},
        {(double)INFINITY, 1000000000000000000},
    };
    now = (struct timespec){5, 7};
    assert_int_equal(clock_ns(), NOW_NS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t at = NOW_NS + cases[i].after_ns;
        const struct timespec deadline = clock_deadline(cases[i].seconds);
        assert_int_equal(clock_ns_after(cases[i].seconds), at);
        assert_int_equal(deadline.tv_sec, at / 1000000000);
        assert_int_equal(deadline.tv_nsec, at % 1000000000);
    }
    assert_true(clock_seconds_since(NOW_NS) == 0 && clock_seconds_since(NOW_NS + 1) == 0);
    check_close(clock_seconds_since(NOW_NS - 1), 1e-9, 1e-15, "one ns");
    check_close(clock_seconds_since(7), 5, 1e-15, "five seconds");
}

static void timeouts_have_a_range(void **state) {
    (void)state;
    static const struct {
        double timeout_s, least;
        const char *message; // NULL: it is allowed
    } cases[] = {
        {0, 0, NULL},
        {1e9, 0, NULL},
        {1e-3, 1e-3, NULL},
        {-1, 0, "timeout_s is -1: expected seconds from 0, at most 1e9"},
        {1.5e9, 0, "timeout_s is 1.5e+09: expected seconds from 0, at most 1e9"},
        {0, 1e-3, "timeout_s is 0: expected seconds above 0, at most 1e9"},
        {(double)NAN, 1e-3, "timeout_s is nan: expected seconds above 0, at most 1e9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        const char *message = cases[i].message;
        assert_int_equal(clock_check_timeout(cases[i].timeout_s, cases[i].least, &err),
                         message ? -1 : 0);
        assert_int_equal(err.status, message ? STATUS_USAGE : STATUS_OK);
        assert_string_equal(err.message, message ? message : "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_exact),
        cmocka_unit_test(timeouts_have_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
