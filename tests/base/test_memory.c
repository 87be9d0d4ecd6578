/* test_memory.c: the heap of common/base/memory: blocks are zeroed, aligned and have exactly the
 * requested size. common/base/object: the memory of closed objects is reused by kind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/object.h"
#include "tests/rigs/failed_check.h"
#include "tests/rigs/sanitizers.h"

static void test_memory(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 200; bytes++) {
        unsigned char *memory = memory_zalloc(bytes);
        assert_int_equal((uintptr_t)memory % MEMORY_ALIGNMENT, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(memory[i], 0);
        free(memory);
    }
    int *items = memory_grow(NULL, 3, sizeof *items);
    for (int i = 0; i < 3; i++) items[i] = i;
    items = memory_grow(items, 1000, sizeof *items);
    for (int i = 0; i < 3; i++) assert_int_equal(items[i], i);
    items = memory_grow(items, 0, sizeof *items);
    assert_non_null(items);
    items = memory_grow(items, 3, 0);
    assert_non_null(items);
    free(items);
    char *text = memory_format("%s", "");
    assert_string_equal(text, "");
    free(text);
}

// Returns whether writing the byte after memory_zalloc(bytes) ends the process.
static bool overrun_ends_process(size_t bytes) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        volatile unsigned char *memory = memory_zalloc(bytes);
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        memory[bytes] = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status != 0;
}

static void test_overrun_is_seen(void **state) {
    (void)state;
    if (!UNDER_ASAN) skip();
    for (size_t bytes = 1; bytes < 200; bytes += 9) assert_true(overrun_ends_process(bytes));
    assert_true(overrun_ends_process(64));
}

// Sizes that overflow end the process with one line.
static void test_too_much_ends_process(void **state) {
    (void)state;
    static const struct {
        size_t count, bytes; // count 0: call memory_zalloc(bytes)
        const char *said;
    } cases[] = {
        {0, SIZE_MAX / 2, "error: out of memory: 1 x 9223372036854775807 bytes asked for\n"},
        {SIZE_MAX / 8 + 1, 8, "error: out of memory: 2305843009213693952 x 8 bytes asked for\n"},
        {1, SIZE_MAX / 2, "error: out of memory: 1 x 9223372036854775807 bytes asked for\n"},
    };
    if (UNDER_ASAN || UNDER_TSAN) skip(); // their allocators end the process themselves
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[200] = "";
        int ends[2], status = 0;
        assert_int_equal(pipe(ends), 0);
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            dup2(ends[1], STDERR_FILENO);
            if (cases[i].count == 0) free(memory_zalloc(cases[i].bytes));
            free(memory_grow(NULL, cases[i].count, cases[i].bytes));
            _exit(0);
        }
        close(ends[1]);
        assert_true(read(ends[0], said, sizeof said - 1) >= 0);
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_string_equal(said, cases[i].said);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_FAILED);
    }
}

// ---- objects ------------------------------------------------------------------------------------

static int held, taken; // mutexes locked now; calls of pthread_mutex_lock

int __real_pthread_mutex_lock(pthread_mutex_t *mutex), __wrap_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *), __wrap_pthread_mutex_unlock(pthread_mutex_t *);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    assert_int_equal(held++, 0);
    taken++;
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    assert_int_equal(held--, 1);
    return __real_pthread_mutex_unlock(mutex);
}

enum { LARGE = 100, SMALL = 8 };

// Opens an object, checks that it is zeroed, and fills it.
static void *open_filled(const char *kind, size_t bytes) {
    static const unsigned char zeros[LARGE];
    void *object = object_open(kind, bytes);
    assert_int_equal((uintptr_t)object % MEMORY_ALIGNMENT, 0);
    assert_memory_equal(object, zeros, bytes);
    assert_true(object_is_open(object));
    object_check_open(object, "no_function");
    return memset(object, 7, bytes);
}

static void close_zeroed(void *object, size_t bytes) {
    static const unsigned char zeros[LARGE];
    object_close(object);
    assert_false(object_is_open(object));
    assert_memory_equal(object, zeros, bytes);
}

static void check_closed(void *object) {
    object_check_open(object, "large_close");
}

// An object reuses the memory of the last closed object of its kind; two open objects never share
// memory.
static void test_objects(void **state) {
    (void)state;
    static const char *const large = "large one", *const small = "small one";
    void *first = open_filled(large, LARGE), *second = open_filled(large, LARGE);
    void *other = open_filled(small, SMALL), *last = open_filled(small, SMALL);
    assert_true(first != second && other != last);
    close_zeroed(first, LARGE);
    close_zeroed(other, SMALL);
    close_zeroed(second, LARGE);
    expect_failed_check(check_closed, second, "large_close: the large one is closed already");
    assert_ptr_equal(open_filled(small, SMALL), other); // from the middle of the list
    assert_ptr_equal(open_filled(large, LARGE), second);
    assert_ptr_equal(open_filled(large, LARGE), first);
    void *third = open_filled(large, LARGE);
    assert_true(third != first && third != second);
    close_zeroed(last, SMALL);
    close_zeroed(third, LARGE);
    assert_ptr_equal(open_filled(large, LARGE), third);
    assert_ptr_equal(open_filled(small, SMALL), last);
    for (size_t i = 0; i < 3; i++) close_zeroed((void *[]){first, second, third}[i], LARGE);
    for (size_t i = 0; i < 2; i++) close_zeroed((void *[]){other, last}[i], SMALL);
    assert_int_equal(held, 0);
    assert_int_equal(taken, 4 + 3 + 4 + 2 + 2 + 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_overrun_is_seen),
        cmocka_unit_test(test_too_much_ends_process),
        cmocka_unit_test(test_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
