/* test_link.c: the emulated link follows its formula: the time of a transfer, transfers that queue,
 * and copies between devices that take at least the model's time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/device/link.h"

static const LinkSpeed SPEED = {.bytes_per_s = 1e9, .latency_s = 5e-6}; // 1 byte takes 1 ns

// The clock of link_sleep_until in this test, and its sleeps; 0: the real clock.
static uint64_t now_ns;
static struct timespec slept_until;
static int sleeps;

uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);
int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest);

uint64_t __wrap_clock_ns(void) {
    return now_ns ? now_ns : __real_clock_ns();
}

// Each sleep ends 1 ms early, but for the third.
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest) {
    if (!now_ns) return __real_clock_nanosleep(clock, flags, until, rest);
    assert_true(clock == CLOCK_MONOTONIC && flags == TIMER_ABSTIME);
    slept_until = *until;
    now_ns = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
    if (++sleeps < 3) now_ns -= 1000000;
    assert_true(sleeps <= 3);
    return 0;
}

static void reads_numbers_and_names(void **unused) {
    (void)unused;
    LinkSpeed speed;
    Error err = {0};
    assert_int_equal(link_parse("10,5", &speed, &err), 0);
    assert_true(fabs(speed.bytes_per_s - 1.25e9) < 1);
    assert_true(fabs(speed.latency_s - 5e-6) < 1e-12);
    char names[64];
    snprintf(names, sizeof names, "%s", link_names());
    int count = 0;
    for (char *rest = names, *name; (name = strtok_r(rest, "|", &rest)); count++)
        assert_int_equal(link_parse(name, &speed, &err), 0);
    assert_int_equal(count, 4);
    assert_int_equal(link_parse("0.001,0", &speed, &err), 0); // the lower limits
    assert_true(fabs(speed.bytes_per_s - 1.25e5) < 1e-6 && speed.latency_s == 0);
    assert_int_equal(link_parse("1e6,1e6", &speed, &err), 0);
    assert_true(fabs(speed.bytes_per_s - 1.25e14) < 1e3 && fabs(speed.latency_s - 1) < 1e-12);
    const char *bad[] = {"9.9e-4,5", "1000001,5", "5,1000001", "",        "10",    "10,",
                         ",5",       "0,5",       "-1,5",      "10,-1",   "10,5x", "nan,5",
                         "10,nan",   "inf,5",     "1e7,5",     "ethernet"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Error refused = {0};
        assert_int_equal(link_parse(bad[i], &speed, &refused), -1);
        assert_int_equal(refused.status, STATUS_USAGE);
        assert_non_null(strstr(refused.message, "GBIT,LATENCY_US"));
    }
}

static void one_transfer_takes_latency_and_bytes(void **unused) {
    (void)unused;
    DeviceLink *a = link_create(SPEED), *b = link_create(SPEED);
    assert_int_equal(link_reserve(a, b, 1000, 100), 100 + 1000 + 5000);
    // An empty message takes the latency, and queues behind the first one.
    assert_int_equal(link_reserve(a, b, 0, 100), 100 + 1000 + 5000);
    link_close(a);
    link_close(b);
    // Two thirds of a nanosecond are rounded up to one.
    DeviceLink *c = link_create((LinkSpeed){1.5e9, 0}), *d = link_create((LinkSpeed){1.5e9, 0});
    assert_int_equal(link_reserve(c, d, 1, 100), 101);
    link_close(c);
    link_close(d);
}

// DataParallel's gather and broadcast: all transfers from and to device 0 queue there.
static void one_device_is_the_bottleneck(void **unused) {
    (void)unused;
    DeviceLink *link[4];
    for (int i = 0; i < 4; i++) link[i] = link_create(SPEED);
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(link_reserve(link[i], link[0], 1000, 0), i * 1000 + 5000);
    // The opposite direction is independent, and free.
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(link_reserve(link[0], link[i], 1000, 0), i * 1000 + 5000);
    for (int i = 0; i < 4; i++) link_close(link[i]);
}

static void strangers_do_not_wait_for_each_other(void **unused) {
    (void)unused;
    DeviceLink *link[4];
    for (int i = 0; i < 4; i++) link[i] = link_create(SPEED);
    assert_int_equal(link_reserve(link[0], link[1], 1000, 0), 6000);
    assert_int_equal(link_reserve(link[2], link[3], 1000, 0), 6000);
    assert_int_equal(link_reserve(link[1], link[2], 1000, 0), 6000); // both directions are free
    for (int i = 0; i < 4; i++) link_close(link[i]);
}

static void the_slower_link_sets_the_pace(void **unused) {
    (void)unused;
    DeviceLink *fast = link_create((LinkSpeed){1e10, 0}), *slow = link_create(SPEED);
    assert_int_equal(link_reserve(fast, slow, 1000, 0), 6000);
    assert_int_equal(link_reserve(slow, fast, 1000, 0), 6000);
    link_close(fast);
    link_close(slow);
}

static void a_collective_fills_both_ways_at_once(void **unused) {
    (void)unused;
    DeviceLink *link = link_create(SPEED);
    LinkLoad load = {.out_bytes = 1000, .in_bytes = 3000, .rounds = 2};
    assert_int_equal(link_reserve_collective(link, &load, 0), 3000 + 2 * 5000);
    assert_int_equal(link_reserve_collective(link, &load, 0), 6000 + 2 * 5000);
    // It began when both ways were free, at 3000. Now sending is free at 4000, receiving at 6000.
    DeviceLink *other = link_create(SPEED), *third = link_create(SPEED);
    assert_int_equal(link_reserve(link, other, 500, 0), 4000 + 500 + 5000);
    assert_int_equal(link_reserve(third, link, 500, 0), 6000 + 500 + 5000);
    load = (LinkLoad){.out_bytes = 3000, .in_bytes = 1000, .rounds = 1};
    assert_int_equal(link_reserve_collective(other, &load, 100), 4500 + 3000 + 5000);
    assert_int_equal(link_reserve_collective(third, &load, 9000), 9000 + 3000 + 5000);
    link_close(link);
    link_close(other);
    link_close(third);
}

static void a_sleep_never_ends_early(void **unused) {
    (void)unused;
    uint64_t until = clock_ns() + 3000000;
    link_sleep_until(until);
    assert_true(clock_ns() >= until);
    link_sleep_until(0);
}

// The deadline is absolute, in seconds and nanoseconds; a sleep that ends early is repeated.
static void a_sleep_has_a_deadline(void **unused) {
    (void)unused;
    static const struct {
        uint64_t until;
        time_t seconds;
        long ns;
    } cases[] = {{999999999, 0, 999999999},
                 {4000000000, 4, 0},
                 {4999999999, 4, 999999999},
                 {12345678901234567, 12345678, 901234567}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        now_ns = cases[i].until - 1, sleeps = 0;
        link_sleep_until(cases[i].until);
        assert_int_equal(sleeps, 3);
        assert_true(slept_until.tv_sec == cases[i].seconds && slept_until.tv_nsec == cases[i].ns);
        link_sleep_until(cases[i].until); // is over
        assert_int_equal(sleeps, 3);
    }
    now_ns = 0;
    assert_int_equal(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1); // wakes on time, not 50 us later
}

static void links_are_described(void **unused) {
    (void)unused;
    char text[LINK_TEXT_MAX];
    LinkSpeed speed;
    assert_int_equal(link_parse("12.5,7", &speed, NULL), 0);
    assert_string_equal(link_describe(speed, text), "an emulated link of 12.5 Gbit/s and 7 us");
    static const char *const named[][2] = {{"10gbe", "10 Gbit/s and 20 us"},
                                           {"pcie3x16", "126 Gbit/s and 5 us"},
                                           {"nvlink", "1200 Gbit/s and 2 us"},
                                           {"paper-rdma", "100 Gbit/s and 3 us"}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(link_parse(named[i][0], &speed, NULL), 0);
        assert_non_null(strstr(link_describe(speed, text), named[i][1]));
    }
}

static void a_copy_takes_no_less_and_keeps_its_bits(void **unused) {
    (void)unused;
    enum { BYTES = 1 << 20 };
    Error err = {0};
    Device *a = device_open("cpu:0", &err), *b = device_open("cpu:1", &err);
    unsigned char *from = device_alloc(a, BYTES), *to = device_alloc(b, BYTES);
    for (size_t i = 0; i < BYTES; i++) from[i] = (unsigned char)(i * 7);
    device_emulate_link(a, SPEED);
    device_emulate_link(b, SPEED);
    uint64_t begin = clock_ns();
    device_copy(b, to, a, from, BYTES);
    assert_true(clock_ns() - begin >= BYTES + 5000);
    assert_memory_equal(from, to, BYTES);
    assert_true(b->copy_ns >= BYTES + 5000); // the profile includes the link's time
    // Two copies into b from other devices would queue; copies within a device use no link.
    DeviceLink *link = b->link;
    uint64_t free_ns = link_reserve(a->link, link, 0, 0);
    memset(to, 0, BYTES / 2);
    device_copy(b, to, b, to + BYTES / 2, BYTES / 2);
    assert_int_equal(link_reserve(a->link, link, 0, 0), free_ns);
    device_free(a, from, BYTES);
    device_free(b, to, BYTES);
    device_close(a);
    device_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_numbers_and_names),
        cmocka_unit_test(one_transfer_takes_latency_and_bytes),
        cmocka_unit_test(one_device_is_the_bottleneck),
        cmocka_unit_test(strangers_do_not_wait_for_each_other),
        cmocka_unit_test(the_slower_link_sets_the_pace),
        cmocka_unit_test(a_collective_fills_both_ways_at_once),
        cmocka_unit_test(a_sleep_never_ends_early),
        cmocka_unit_test(a_sleep_has_a_deadline),
        cmocka_unit_test(links_are_described),
        cmocka_unit_test(a_copy_takes_no_less_and_keeps_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
