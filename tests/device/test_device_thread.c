/* test_device_thread.c: a device's own thread runs the calls submitted to it on the cores that it
 * is bound to, while the calling thread keeps its own cores. Every lock is released by its owner.
 * Large allocations use huge pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <pthread.h>

#include "common/base/cores.h"
#include "common/device/device.h"

// ---- every lock has its unlock, by the same thread ---------------------------------------------

static _Thread_local int held, locks; // of the libraries' mutexes: at most one at a time here
static volatile int mistakes;         // written by one thread only

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    locks++;
    if (held++ != 0) mistakes++;
    return __real_pthread_mutex_lock(mutex);
}

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (--held != 0) mistakes++;
    return __real_pthread_mutex_unlock(mutex);
}

int __real_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    const int busy = __real_pthread_mutex_destroy(mutex);
    if (busy) mistakes++; // the mutex is held by a thread that has ended
    return busy;
}

// ---- the thread's name -------------------------------------------------------------------------

static volatile int named; // threads that named themselves

int __real_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_setname_np(pthread_t thread, const char *name) {
    named += pthread_equal(thread, pthread_self()) != 0;
    return __real_pthread_setname_np(thread, name);
}

static void note_name(void *name) {
    pthread_getname_np(pthread_self(), name, 16);
}

static void names_itself_after_its_device(void **unused) {
    (void)unused;
    Error err = {0};
    char name[16] = "";
    Device *device = device_open("cpu:3", &err);
    named = 0;
    device_submit(device, note_name, name);
    assert_int_equal(device_wait(device, 60, &err), 0);
    assert_string_equal(name, "cpu:3");
    assert_int_equal(named, 1);
    device_close(device);
}

// ---- cores -------------------------------------------------------------------------------------

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
    assert_true(locks > 0);
    assert_int_equal(mistakes, 0);
}

// Returns whether the mapping of the address has requested huge pages (flag "hg" in smaps).
static bool wants_huge_pages(const void *address) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long first, end;
    bool here = false, found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            here = (uintptr_t)address >= first && (uintptr_t)address < end;
        found = here && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg");
    }
    if (file) fclose(file);
    return found;
}

// Returns whether the system has transparent huge pages (qemu-user has none).
static bool system_has_huge_pages(void) {
    enum { BYTES = 4 << 20 };
    void *memory = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    madvise(memory, BYTES, MADV_HUGEPAGE);
    const bool has = wants_huge_pages(memory);
    munmap(memory, BYTES);
    return has;
}

static void large_memory_lies_in_huge_pages(void **unused) {
    (void)unused;
    enum { HUGE_PAGE = 2 << 20 };
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    void *large = device_alloc(device, HUGE_PAGE), *small = device_alloc(device, HUGE_PAGE - 1);
    assert_int_equal((uintptr_t)large % HUGE_PAGE, 0);
    memset(large, 0, HUGE_PAGE);
    if (system_has_huge_pages()) assert_true(wants_huge_pages(large) && !wants_huge_pages(small));
    device_free(device, large, HUGE_PAGE);
    device_free(device, small, HUGE_PAGE - 1);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_itself_after_its_device),
                                       cmocka_unit_test(stays_on_its_share),
                                       cmocka_unit_test(large_memory_lies_in_huge_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
