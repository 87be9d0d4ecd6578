/* test_guard.c: the process that kills the ranks' remaining processes if ddprun dies
 * (ddp/launch/guard.c). The process groups are this test's; closing the pipe simulates ddprun's
 * death.
 */
#include "tests/rigs/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/launch/launch.h"

enum { GROUPS = 4 };

static const char *failing; // "pipe2" or "fork": fails with EMFILE

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
pid_t __real_fork(void);
pid_t __wrap_fork(void);

static bool fails(const char *name) {
    errno = EMFILE;
    return failing && strcmp(failing, name) == 0;
}

int __wrap_pipe2(int ends[2], int flags) {
    return fails("pipe2") ? -1 : __real_pipe2(ends, flags);
}

pid_t __wrap_fork(void) {
    return fails("fork") ? -1 : __real_fork();
}

static int count_descriptors(const char *folder_name) {
    int count = 0;
    DIR *folder = opendir(folder_name);
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

// Starts a process that leads a group and waits. Called before guard_open, because a copy of the
// pipe would keep it open.
static pid_t start_group(void) {
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        for (;;) pause();
    }
    assert_true(pid > 0);
    assert_int_equal(setpgid(pid, pid), 0);
    return pid;
}

static void assert_killed(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void assert_lives(pid_t pid) {
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static Guard open_guard(void) {
    Guard guard;
    Error err = {0};
    CHECK_OK(guard_open(&guard, &err) == 0, err);
    assert_true(guard.pid > 0);
    assert_int_equal(fcntl(guard.fd, F_GETFD), FD_CLOEXEC);
    return guard;
}

// Simulates the launcher's death: closes the last writing end of the pipe.
static void die(const Guard *guard) {
    int status = -1;
    close(guard->fd);
    assert_int_equal(waitpid(guard->pid, &status, 0), guard->pid);
    assert_int_equal(status, 0);
}

// After the death each registered group that was not released is killed, whichever one was
// released.
static void test_groups(void **state) {
    (void)state;
    for (int released = -1; released < GROUPS; released++) {
        pid_t pids[GROUPS], stranger = start_group();
        for (int i = 0; i < GROUPS; i++) pids[i] = start_group();
        const Guard guard = open_guard();
        for (int i = 0; i < GROUPS; i++) guard_tell(&guard, pids[i]);
        if (released >= 0) guard_tell(&guard, -pids[released]);
        guard_tell(&guard, -stranger);                 // not registered
        guard_tell(&guard, pids[3 - (released == 3)]); // registered a second time
        die(&guard);
        for (int i = 0; i < GROUPS; i++)
            if (i == released)
                assert_lives(pids[i]);
            else
                assert_killed(pids[i]);
        assert_lives(stranger);
    }
}

// A group that was registered twice is released by one message.
static void test_told_twice(void **state) {
    (void)state;
    const pid_t pid = start_group(), other = start_group();
    const Guard guard = open_guard();
    guard_tell(&guard, pid);
    guard_tell(&guard, other);
    guard_tell(&guard, pid);
    guard_tell(&guard, -pid);
    die(&guard);
    assert_lives(pid);
    assert_killed(other);
}

// The maximum number of ranks' groups, the last of them existing; further groups are ignored.
static void test_many_groups(void **state) {
    (void)state;
    const pid_t last = start_group(), beyond = start_group();
    const Guard guard = open_guard();
    const int unused = 1 << 30; // numbers of groups that do not exist
    for (int i = 0; i < LAUNCH_RANKS_MAX - 1; i++) guard_tell(&guard, unused + i);
    guard_tell(&guard, last);
    guard_tell(&guard, beyond);
    die(&guard);
    assert_killed(last);
    assert_lives(beyond);
}

// The guard has its own session and name, keeps only the pipe open, and ignores a terminal's
// signals.
static void test_apart(void **state) {
    (void)state;
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    char folder[40], path[40], name[20] = "";
    const pid_t pid = start_group();
    const Guard guard = open_guard();
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)guard.pid);
    snprintf(path, sizeof path, "/proc/%d/comm", (int)guard.pid);
    for (int i = 0; i < 5000 && count_descriptors(folder) != 1; i++) usleep(1000);
    assert_int_equal(count_descriptors(folder), 1);
    FILE *file = fopen(path, "re");
    assert_true(file && fgets(name, sizeof name, file));
    fclose(file);
    assert_string_equal(name, "ddprun-guard\n");
    assert_int_equal(getsid(guard.pid), guard.pid);
    for (int i = 0; i < 4; i++) kill(guard.pid, signals[i]);
    guard_tell(&guard, pid);
    die(&guard);
    assert_killed(pid);
}

// Closing the guard ends and reaps it, even if it is stopped.
static void test_close(void **state) {
    (void)state;
    const int before = count_descriptors("/proc/self/fd");
    for (int stopped = 0; stopped < 2; stopped++) {
        Guard guard = open_guard();
        int status = 0;
        if (stopped) {
            kill(guard.pid, SIGSTOP);
            assert_int_equal(waitpid(guard.pid, &status, WUNTRACED), guard.pid);
        }
        guard_close(&guard);
        assert_int_equal(waitpid(guard.pid, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(count_descriptors("/proc/self/fd"), before);
    }
    Guard none = {0};
    guard_close(&none);
    assert_int_equal(count_descriptors("/proc/self/fd"), before);
}

static void test_cannot_open(void **state) {
    (void)state;
    static const char *const calls[] = {"pipe2", "fork"};
    static const char *const says[] = {"cannot open the guard's pipe: ",
                                       "cannot start the guard: "};
    const int before = count_descriptors("/proc/self/fd");
    for (int i = 0; i < 2; i++) {
        Guard guard = {0};
        Error err = {0};
        failing = calls[i];
        assert_int_equal(guard_open(&guard, &err), -1);
        failing = NULL;
        assert_int_equal(err.status, STATUS_FAILED);
        check_message(&err, says[i]);
        check_message(&err, strerror(EMFILE));
        assert_int_equal(guard.pid, 0);
        assert_int_equal(count_descriptors("/proc/self/fd"), before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_told_twice),
        cmocka_unit_test(test_many_groups), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_close),       cmocka_unit_test(test_cannot_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
