/* test_clock.c: times and the phases of a step, exact to the nanosecond: clock_gettime is replaced
 * by a clock that only the test advances.
 */
#include "tests/rigs/check.h"

#include <stdbool.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/profile.h"

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
        const char *message; // the error; NULL: allowed
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

// ---- phases -------------------------------------------------------------------------------------

static int waits; // calls of device_synchronize

static void wait_a_nanosecond(void *context) {
    assert_ptr_equal(context, &waits);
    waits++;
    now.tv_nsec++;
}

// A step of 1 + 10 + 100 + 20 + 2 ns, in nested phases.
static uint64_t measure_step(Profile *profile) {
    now = (struct timespec){5, 0};
    profile_begin_step(profile);
    now.tv_nsec += 1;
    const Phase outer = profile_enter(profile, PHASE_BACKWARD);
    now.tv_nsec += 10;
    const Phase inner = profile_enter(profile, PHASE_REDUCE);
    assert_true(outer == PHASE_OTHER && inner == PHASE_BACKWARD);
    now.tv_nsec += 100;
    profile_leave(profile, inner);
    now.tv_nsec += 20;
    profile_communication(profile, 7);
    profile_communication(profile, 8);
    profile_leave(profile, outer);
    now.tv_nsec += 2;
    return profile_end_step(profile);
}

static void check_profile(const Profile *profile, uint64_t steps) {
    const uint64_t wait = profile->wait_for_device ? 1 : 0;
    for (Phase p = 0; p < PHASE_COUNT; p++) {
        const uint64_t ns = p == PHASE_OTHER      ? 3 + 2 * wait
                            : p == PHASE_BACKWARD ? 30 + 2 * wait
                            : p == PHASE_REDUCE   ? 100 + wait
                                                  : 0;
        assert_int_equal(profile->step[p], ns);
        assert_int_equal(profile->total[p], steps * ns);
    }
    assert_int_equal(profile->steps, steps);
    assert_int_equal(profile->step_communication, 15);
    assert_int_equal(profile->total_communication, 15 * steps);
}

static void phases_partition_a_step(void **state) {
    (void)state;
    Profile profile = {0};
    for (uint64_t step = 1; step <= 3; step++) {
        assert_int_equal(measure_step(&profile), 133);
        check_profile(&profile, step);
        profile_leave(&profile, profile_enter(&profile, PHASE_DATA)); // between steps: not counted
    }
    Profile waiting = {.wait_for_device = wait_a_nanosecond, .wait_context = &waits};
    profile_leave(&waiting, profile_enter(&waiting, PHASE_DATA));
    assert_int_equal(measure_step(&waiting), 138);
    check_profile(&waiting, 1);
    assert_int_equal(waits, 5);
    profile_begin_step(NULL);
    profile_communication(NULL, 1);
    profile_leave(NULL, profile_enter(NULL, PHASE_DATA));
    assert_true(profile_enter(NULL, PHASE_DATA) == PHASE_OTHER && profile_end_step(NULL) == 0);
    for (Phase p = 0; p < PHASE_COUNT; p++) assert_non_null(phase_name(p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_exact),
        cmocka_unit_test(timeouts_have_a_range),
        cmocka_unit_test(phases_partition_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
