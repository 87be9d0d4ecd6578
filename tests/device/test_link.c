/* test_link.c: the emulated link follows its formula: the time of a transfer, transfers that queue,
 * and copies between devices that take at least the model's time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/device/link.h"

static const LinkSpeed SPEED = {.bytes_per_s = 1e9, .latency_s = 5e-6}; // 1 byte takes 1 ns

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
    link_close(fast);
    link_close(slow);
}

static void a_collective_fills_both_ways_at_once(void **unused) {
    (void)unused;
    DeviceLink *link = link_create(SPEED);
    LinkLoad load = {.out_bytes = 1000, .in_bytes = 3000, .rounds = 2};
    assert_int_equal(link_reserve_collective(link, &load, 0), 3000 + 2 * 5000);
    assert_int_equal(link_reserve_collective(link, &load, 0), 6000 + 2 * 5000);
    link_close(link);
}

static void a_sleep_never_ends_early(void **unused) {
    (void)unused;
    uint64_t until = clock_ns() + 3000000;
    link_sleep_until(until);
    assert_true(clock_ns() >= until);
    link_sleep_until(0);
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
        cmocka_unit_test(a_copy_takes_no_less_and_keeps_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
