/* test_device_thread.c: a device's own thread runs what it is given, and stays on the cores that it
 * is bound to, while the calling thread keeps its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/cores.h"
#include "common/device/device.h"

static void note_cores(void *cores) {
    sched_getaffinity(0, sizeof(cpu_set_t), cores);
}

static void stays_on_its_share(void **unused) {
    (void)unused;
    Error err = {0};
    cpu_set_t all, share, seen, mine;
    sched_getaffinity(0, sizeof all, &all);
    for (int place = 0; place < 2; place++) {
        Device *device = device_open("cpu:0", &err);
        device_bind_cores(device, place, 2);
        for (int job = 0; job < 3; job++) {
            CPU_ZERO(&seen);
            device_submit(device, note_cores, &seen);
            assert_int_equal(device_wait(device, 60, &err), 0);
            cores_share(&all, place, 2, &share);
            assert_true(CPU_EQUAL(&seen, &share));
        }
        sched_getaffinity(0, sizeof mine, &mine);
        assert_true(CPU_EQUAL(&mine, &all));
        device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stays_on_its_share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
