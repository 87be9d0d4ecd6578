/* test_count_gpus.c: the child process that counts GPUs for ddprun (ddp/launch/count_gpus.c): its
 * results, and a driver that hangs or crashes. This file simulates the driver.
 */
#include "tests/rigs/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ddp/launch/count_gpus.h"

typedef enum Driver { COUNTS, FAILS, CRASHES, HANGS } Driver;

static struct {
    Driver driver;
    int count;
    const char *failing; // "pipe2" or "fork"
    int interrupted;     // number of calls of poll that fail with EINTR
    int timeout_ms;      // of the last call of poll
    int waits;           // number of calls of waitpid that are interrupted
} play;

static pid_t tester; // this process, which must not count GPUs itself

// Runs in the counting process, which must end with its parent.
int __wrap_gpu_driver_count(Error *err);
int __wrap_gpu_driver_count(Error *err) {
    int ends_by = 0;
    if (getpid() == tester) abort();
    alarm(60);
    prctl(PR_GET_PDEATHSIG, &ends_by);
    if (ends_by != SIGKILL) return error_set(err, STATUS_FAILED, "it survives its parent");
    if (play.driver == FAILS) return error_set(err, STATUS_SKIPPED, "there is no driver");
    if (play.driver == CRASHES) _exit(7);
    while (play.driver == HANGS) pause();
    return play.count;
}

static bool fails(const char *call) {
    errno = EMFILE;
    return play.failing && strcmp(play.failing, call) == 0;
}

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags) {
    assert_int_equal(flags, O_CLOEXEC);
    return fails("pipe2") ? -1 : __real_pipe2(ends, flags);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void) {
    return fails("fork") ? -1 : __real_fork();
}

int __real_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms) {
    assert_int_equal(count, 1);
    play.timeout_ms = timeout_ms;
    errno = EINTR;
    if (play.interrupted-- > 0) return -1;
    return __real_poll(entries, count, play.driver == HANGS ? 0 : 60000);
}

pid_t __real_waitpid(pid_t pid, int *status, int flags);
pid_t __wrap_waitpid(pid_t pid, int *status, int flags);
pid_t __wrap_waitpid(pid_t pid, int *status, int flags) {
    errno = EINTR;
    return play.waits-- > 0 ? -1 : __real_waitpid(pid, status, flags);
}

static void what_is_counted(void **state) {
    (void)state;
    static const struct {
        Driver driver;
        int count, interrupted, result, status;
        const char *message;
    } cases[] = {
        {COUNTS, 1, 0, 1, STATUS_OK, ""},
        {COUNTS, 8, 2, 8, STATUS_OK, ""},
        {FAILS, 0, 0, -1, STATUS_SKIPPED, "there is no driver"},
        {CRASHES, 8, 0, -1, STATUS_FAILED, "the CUDA driver crashed when it counted the GPUs"},
        {HANGS, 8, 1, -1, STATUS_FAILED,
         "the CUDA driver did not count the GPUs within 2.5 s (--start-timeout)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        int ended = 0;
        const int before = count_descriptors();
        play.driver = cases[i].driver;
        play.count = cases[i].count;
        play.interrupted = cases[i].interrupted;
        play.waits = cases[i].driver == COUNTS;
        assert_int_equal(count_gpus(2.5, &err), cases[i].result);
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(err.status, cases[i].status);
        assert_int_equal(play.timeout_ms, 2500);
        assert_int_equal(count_descriptors(), before);
        if (play.driver == HANGS) {
            assert_true(waitpid(-1, &ended, 0) > 0);
            assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        }
        assert_int_equal(waitpid(-1, NULL, 0), -1); // the child was reaped
    }
}

static void no_process(void **state) {
    (void)state;
    static const char *const calls[] = {"pipe2", "fork"};
    for (int i = 0; i < 2; i++) {
        Error err = {0};
        play.failing = calls[i];
        assert_int_equal(count_gpus(1, &err), -1);
        play.failing = NULL;
        assert_string_equal(err.message, "cannot count the GPUs: Too many open files");
        assert_int_equal(err.status, STATUS_FAILED);
    }
}

int main(void) {
    tester = getpid();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_counted),
        cmocka_unit_test(no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
