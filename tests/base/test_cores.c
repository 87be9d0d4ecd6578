/* test_cores.c: the division of cores among processes, and the time slice that a thread requests
 * from the kernel. */
#include "tests/rigs/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "common/base/cores.h"

// Five cores that are not contiguous, as in a container.
static cpu_set_t some_cores(void) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (size_t core = 3; core < 12; core += 2) CPU_SET(core, &all);
    return all;
}

static void test_cores_are_shared_in_order(void **state) {
    (void)state;
    const cpu_set_t all = some_cores();
    cpu_set_t first, second, both;
    cores_share(&all, 0, 2, &first);
    cores_share(&all, 1, 2, &second);
    assert_true(CPU_COUNT(&first) == 2 && CPU_ISSET(3, &first) && CPU_ISSET(5, &first));
    assert_true(CPU_COUNT(&second) == 3 && CPU_ISSET(11, &second));
    CPU_OR(&both, &first, &second);
    assert_true(CPU_EQUAL(&both, &all));
}

static void test_more_places_than_cores(void **state) {
    (void)state;
    const cpu_set_t all = some_cores();
    cpu_set_t share, none;
    for (int place = 0; place < 12; place++) {
        cores_share(&all, place, 12, &share);
        assert_true(CPU_COUNT(&share) == 1 && CPU_ISSET((size_t)(3 + 2 * (place % 5)), &share));
    }
    CPU_ZERO(&none);
    cores_share(&none, 1, 2, &share);
    assert_int_equal(CPU_COUNT(&share), 0);
}

// First version of the kernel's struct sched_attr.
typedef struct Attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} Attributes;

static struct {
    bool fails; // sched_getattr fails
    int reads, writes;
    Attributes written;
} kernel;

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    assert_int_equal(va_arg(arguments, int), 0); // pid 0: this thread
    Attributes *attributes = va_arg(arguments, Attributes *);
    if (number == SYS_sched_getattr) {
        assert_int_equal(va_arg(arguments, size_t), sizeof *attributes);
        *attributes = (Attributes){sizeof *attributes, 3, 0, 5, 0, 2800000, 7, 8};
        kernel.reads++;
    } else {
        assert_int_equal(number, SYS_sched_setattr);
        kernel.written = *attributes;
        kernel.writes++;
    }
    assert_int_equal(va_arg(arguments, int), 0); // flags
    va_end(arguments);
    errno = ENOSYS;
    return kernel.fails ? -1 : 0;
}

// Only the slice of the thread's attributes changes; a kernel without slices gets no call.
static void test_short_turns(void **state) {
    (void)state;
    cores_take_short_turns();
    const Attributes *a = &kernel.written;
    assert_true(kernel.reads == 1 && kernel.writes == 1);
    assert_true(a->size == 48 && a->policy == 3 && a->nice == 5 && a->flags == 0);
    assert_true(a->runtime_ns == 100000 && a->deadline_ns == 7 && a->period_ns == 8);
    kernel.fails = true;
    cores_take_short_turns();
    assert_true(kernel.reads == 2 && kernel.writes == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_are_shared_in_order),
        cmocka_unit_test(test_more_places_than_cores),
        cmocka_unit_test(test_short_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
