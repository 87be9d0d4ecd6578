/* test_device_limits.c: a device's limit of memory, OpenBLAS's memory under the process's limits,
 * and the deadline of a device's job: the exact limit suffices, one more is refused.
 */
#include "tests/rigs/failed_check.h"
#include "tests/rigs/sanitizers.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/device/cpu/blas_memory.h"
#include "common/device/cpu/kernels.h"
#include "common/device/device.h"
#include "common/device/device_backend.h"

// ---- --memory-limit -----------------------------------------------------------------------------

// Returns whether `call` ends a child with one line that has these words.
static bool ends(void (*call)(Device *device), Device *device, const char *words) {
    int status = 0;
    Captured captured = captured_begin();
    const pid_t child = fork();
    if (child == 0) {
        call(device);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    char *printed = captured_end(&captured);
    const bool found =
        WIFEXITED(status) && WEXITSTATUS(status) == STATUS_FAILED && strstr(printed, words);
    if (!found) print_error("status %d, '%s'\n", status, printed);
    free(printed);
    return found;
}

static void allocate_two(Device *device) {
    (void)device_alloc(device, 2);
}

static void count_two(Device *device) {
    device_count(device, 2);
}

static void a_device_keeps_its_limit(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    if (UNDER_TSAN) skip(); // which does not support threads in a child
    device->limit_bytes = 100;
    void *most = device_alloc(device, 99);
    static const char words[] =
        "error: cpu:0 is out of memory: asked for 2 bytes, 99 in use of the "
        "100 that --memory-limit allows\n";
    assert_true(ends(allocate_two, device, words) && ends(count_two, device, words));
    void *rest = device_alloc(device, 1);
    assert_int_equal(device->bytes, 100);
    device_free(device, rest, 1);
    device_count(device, 1);
    device_uncount(device, 1);
    device_free(device, most, 99);
    device_close(device);
}

// ---- ulimit -------------------------------------------------------------------------------------

static void set_limit(int resource, rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(resource, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(resource, &limit), 0);
}

// Returns whether limits have an effect: qemu-user accepts and ignores them.
static bool has_limits(void) {
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    set_limit(RLIMIT_AS, (rlim_t)1 << 40);
    assert_int_equal(getrlimit(RLIMIT_AS, &now), 0);
    set_limit(RLIMIT_AS, before.rlim_cur);
    return now.rlim_cur <= (rlim_t)1 << 40;
}

// The error names the smaller limit, and a limit that suffices.
static void openblas_needs_memory(void **state) {
    (void)state;
    static const struct {
        rlim_t space, data; // KiB
        size_t threads;
        const char *limit, *needs;
    } cases[] = {
        {100000, RLIM_INFINITY, 1, "the address space is limited to 100000 KiB (ulimit -v), and ",
         "OpenBLAS needs 139264 KiB for 1 thread -- raise the limit to more than "},
        {RLIM_INFINITY, 100000, 3, "the data segment is limited to 100000 KiB (ulimit -d), and ",
         "OpenBLAS needs 417792 KiB for 3 threads -- raise the limit to more than "},
        {100000, 100000, 2, "the address space is limited to 100000 KiB (ulimit -v), and ",
         "OpenBLAS needs 278528 KiB for 2 threads -- "},
        {100001, 100000, 2, "the data segment is limited to 100000 KiB (ulimit -d), and ",
         "OpenBLAS needs 278528 KiB for 2 threads -- "},
    };
    if (UNDER_ASAN || UNDER_TSAN || !has_limits()) skip(); // sanitizers reserve huge ranges
    struct rlimit space, data;
    assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &data), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        const rlim_t unit = 1024;
        set_limit(RLIMIT_AS,
                  cases[i].space == RLIM_INFINITY ? space.rlim_max : cases[i].space * unit);
        set_limit(RLIMIT_DATA,
                  cases[i].data == RLIM_INFINITY ? data.rlim_max : cases[i].data * unit);
        const int refused = blas_memory_check(cases[i].threads, &err);
        const int none = blas_memory_check(0, NULL); // no buffer
        set_limit(RLIMIT_AS, space.rlim_cur);
        set_limit(RLIMIT_DATA, data.rlim_cur);
        assert_int_equal(refused, -1);
        assert_int_equal(none, 0);
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, cases[i].limit);
        check_message(&err, cases[i].needs);
        if (i > 0) continue;
        const char *more = strstr(err.message, "to more than ");
        assert_non_null(more);
        const rlim_t enough = strtoull(more + strlen("to more than "), NULL, 10) + 64;
        set_limit(RLIMIT_AS, enough * unit);
        const int accepted = blas_memory_check(1, &err);
        set_limit(RLIMIT_AS, (enough - 1024) * unit);
        const int less = blas_memory_check(1, NULL);
        set_limit(RLIMIT_AS, space.rlim_cur);
        assert_true(accepted == 0 && less == -1);
    }
    if (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY)
        assert_int_equal(blas_memory_check(1000000, NULL), 0); // without a limit nothing is tried
}

// OpenBLAS's buffers: the third and later ones are mapped anew, if `maps` is set.
enum { MOST = 64, MAPPED = 9 << 20 };
static bool fake, maps;
static int held, freed; // buffers
static void *mapped[MOST];
static char buffers[MOST];

void *__real_blas_memory_alloc(int position), *__wrap_blas_memory_alloc(int position);
void __real_blas_memory_free(void *buffer), __wrap_blas_memory_free(void *buffer);

void *__wrap_blas_memory_alloc(int position) {
    if (!fake) return __real_blas_memory_alloc(position);
    assert_true(position == 0 && held < MOST);
    if (maps && held >= 2)
        mapped[held] = mmap(NULL, MAPPED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return &buffers[held++];
}

void __wrap_blas_memory_free(void *buffer) {
    if (!fake) {
        __real_blas_memory_free(buffer);
        return;
    }
    freed++;
    assert_ptr_equal(buffer, &buffers[--held]);
}

// Holds OpenBLAS's buffers until one is mapped, at most 64, and gives all back.
static void a_buffer_is_reserved(void **state) {
    (void)state;
    if (UNDER_ASAN || UNDER_TSAN || !has_limits()) skip();
    static const int wanted[] = {0, 3, MOST};
    struct rlimit space;
    assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
    for (int i = 0; i < 3; i++) { // without a limit, then with new buffers, then with none
        Error err = {0};
        maps = i == 1, freed = 0;
        set_limit(RLIMIT_AS, i == 0 ? space.rlim_max : (rlim_t)1 << 40);
        fake = true;
        const int failed = blas_memory_reserve(&err);
        fake = false;
        set_limit(RLIMIT_AS, space.rlim_cur);
        assert_int_equal(failed, 0);
        assert_int_equal(held, 0);
        if (i > 0 || space.rlim_max == RLIM_INFINITY) assert_int_equal(freed, wanted[i]);
    }
    munmap(mapped[2], MAPPED);
}

// ---- a job's deadline ---------------------------------------------------------------------------

static void wait_for_release(void *mutex) {
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
}

static void a_wait_has_a_deadline(void **state) {
    (void)state;
    Error err = {0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    pthread_mutex_lock(&mutex);
    device_submit(device, wait_for_release, &mutex);
    for (int i = 0; i < 2; i++) {
        err = (Error){0};
        assert_int_equal(device_wait(device, i * 0.01, &err), -1);
        check_message(&err, "cpu:0 did not finish its job within 0 s");
        assert_int_equal(err.status, STATUS_FAILED);
    }
    err = (Error){0};
    assert_int_equal(device_wait(device, -1, &err), -1);
    check_message(&err, "timeout_s is -1: expected seconds from 0, at most 1e9");
    pthread_mutex_unlock(&mutex);
    CHECK_OK(device_wait(device, 60, &err) == 0, err);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_keeps_its_limit),
        cmocka_unit_test(openblas_needs_memory),
        cmocka_unit_test(a_buffer_is_reserved),
        cmocka_unit_test(a_wait_has_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
