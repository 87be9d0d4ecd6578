/* test_gpu_driver.c: GPUs are counted by CUDA's driver: the messages without a driver, with an
 * incomplete driver, without devices, and after a failure. This file simulates the driver.
 */
#include "tests/rigs/check.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "common/device/gpu_driver.h"

static struct {
    bool there, initializes, counts; // whether the library and its two functions exist
    int initialized, counted, count; // the functions' results
    int calls;
} driver;

static int initialize(unsigned flags) {
    assert_int_equal(flags, 0);
    driver.calls++;
    return driver.initialized;
}

static int count_devices(int *count) {
    assert_int_equal(driver.calls++, 1);
    *count = driver.count;
    return driver.counted;
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    assert_non_null(strstr(name, "libcuda"));
    assert_int_equal(flags & RTLD_NOW, RTLD_NOW);
    return driver.there ? &driver : NULL;
}

void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
    assert_ptr_equal(library, &driver);
    int (*const initializes)(unsigned) = initialize;
    int (*const counts)(int *) = count_devices;
    void *symbol = NULL;
    if (strcmp(name, "cuInit") == 0 && driver.initializes)
        memcpy(&symbol, &initializes, sizeof symbol);
    if (strcmp(name, "cuDeviceGetCount") == 0 && driver.counts)
        memcpy(&symbol, &counts, sizeof symbol);
    return symbol;
}

static void what_a_driver_says(void **state) {
    (void)state;
    enum { NO_DEVICE = 100 };
    static const struct {
        bool there, initializes, counts;
        int initialized, counted, count, result, status;
        const char *words;
    } cases[] = {
        {false, true, true, 0, 0, 2, -1, STATUS_SKIPPED, "there is no driver"},
        {true, false, true, 0, 0, 2, -1, STATUS_SKIPPED, "there is no driver"},
        {true, true, false, 0, 0, 2, -1, STATUS_SKIPPED, "there is no driver"},
        {true, true, true, NO_DEVICE, 0, 2, -1, STATUS_SKIPPED, "the driver finds no device"},
        {true, true, true, 0, NO_DEVICE, 2, -1, STATUS_SKIPPED, "the driver finds no device"},
        {true, true, true, 0, 0, 0, -1, STATUS_SKIPPED, "the driver finds no device"},
        {true, true, true, 99, 0, 2, -1, STATUS_FAILED, "the CUDA driver's error is 99"},
        {true, true, true, 0, 101, 2, -1, STATUS_FAILED, "the CUDA driver's error is 101"},
        {true, true, true, 1, 0, 0, -1, STATUS_FAILED, "the CUDA driver's error is 1"},
        {true, true, true, 0, 0, 1, 1, STATUS_OK, NULL},
        {true, true, true, 0, 0, 8, 8, STATUS_OK, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        driver.there = cases[i].there;
        driver.initializes = cases[i].initializes;
        driver.counts = cases[i].counts;
        driver.initialized = cases[i].initialized;
        driver.counted = cases[i].counted;
        driver.count = cases[i].count;
        driver.calls = 0;
        const int found = gpu_driver_count(&err);
        if (found != cases[i].result) fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(err.status, cases[i].status);
        if (cases[i].words) check_message(&err, cases[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_driver_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
