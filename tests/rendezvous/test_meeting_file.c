/* test_meeting_file.c: the file of file:// URLs (ddp/rendezvous/meeting_file.h): its lines, its
 * lock, and failing system calls. The rendezvous through it, and files that are refused:
 * tests/semantics/test_semantics_init.c.
 */
#include "tests/rigs/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "ddp/rendezvous/meeting_file.h"
#include "tests/rigs/files.h"
#include "tests/rigs/temp_folder.h"

// ---- Failing system calls ---------------------------------------------------------------------

typedef enum Call { NONE, FLOCK, PREAD, WRITE, FSTAT, FCHMOD, STAT } Call;

static Call failing;
static int fails_with; // errno; 0: a short write
static int fine_before, times;
static const char *moved_path; // unlinked during flock; NULL: none
static bool made_anew;         // a new file replaces it
static int locks, sleeps;      // numbers of calls
static bool frozen;            // sleeping advances the clock at once
static uint64_t slept_ns;

static bool fails(Call call) {
    if (call != failing || fine_before-- > 0 || times-- <= 0) return false;
    errno = fails_with;
    return true;
}

static void let_fail(Call call, int before, int error) {
    fine_before = before;
    times = 1;
    fails_with = error;
    failing = call;
}

#define REAL(type, name, ...) type __real_##name(__VA_ARGS__), __wrap_##name(__VA_ARGS__)

REAL(int, flock, int fd, int operation);
REAL(ssize_t, pread, int fd, void *data, size_t bytes, off_t offset);
REAL(ssize_t, write, int fd, const void *data, size_t bytes);
REAL(int, fstat, int fd, struct stat *about);
REAL(int, fchmod, int fd, mode_t mode);
REAL(int, stat, const char *path, struct stat *about);
REAL(int, nanosleep, const struct timespec *time, struct timespec *left);
REAL(uint64_t, clock_ns, void);

int __wrap_flock(int fd, int operation) {
    if (fails(FLOCK)) return -1;
    if (operation == LOCK_UN) return __real_flock(fd, operation);
    locks++;
    if (moved_path) { // the last rank of an earlier job removes the file
        assert_int_equal(unlink(moved_path), 0);
        if (made_anew) close(open(moved_path, O_RDWR | O_CREAT, 0600));
        moved_path = NULL;
    }
    return __real_flock(fd, operation);
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset) {
    return fails(PREAD) ? -1 : __real_pread(fd, data, bytes, offset);
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
    if (!fails(WRITE)) return __real_write(fd, data, bytes);
    return fails_with ? -1 : (ssize_t)bytes - 1;
}

int __wrap_fstat(int fd, struct stat *about) {
    return fails(FSTAT) ? -1 : __real_fstat(fd, about);
}

int __wrap_fchmod(int fd, mode_t mode) {
    return fails(FCHMOD) ? -1 : __real_fchmod(fd, mode);
}

int __wrap_stat(const char *path, struct stat *about) {
    return fails(STAT) ? -1 : __real_stat(path, about);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    assert_int_equal(time->tv_sec, 0);
    assert_true(time->tv_nsec == 1000000 || time->tv_nsec == 5000000); // lock; rank 0's line
    sleeps++;
    slept_ns += (uint64_t)time->tv_nsec;
    return frozen ? 0 : __real_nanosleep(time, left);
}

uint64_t __wrap_clock_ns(void) {
    return frozen ? 1000000000 + slept_ns : __real_clock_ns();
}

static uint64_t soon(void) {
    return clock_ns() + 20000000000u;
}

static MeetingFile *join(const char *path, int rank) {
    Error err = {0};
    MeetingFile *f = meeting_file_join(path, rank, 2, soon(), &err);
    CHECK_OK(f, err);
    return f;
}

// ---- Its lines --------------------------------------------------------------------------------

// The line that this process writes as rank `rank`.
static void write_joined(char *text, size_t capacity, int rank) {
    char boot[48], host[72], stat_line[1024] = "";
    unsigned long long start = 0;
    machine_boot_id(boot, sizeof boot);
    machine_name(host, sizeof host);
    FILE *file = fopen("/proc/thread-self/stat", "re");
    assert_non_null(file);
    assert_non_null(fgets(stat_line, sizeof stat_line, file));
    fclose(file);
    const char *at = strrchr(stat_line, ')') + 1;
    for (int field = 2; field < 22; field++) at = strchr(at, ' ') + 1;
    start = strtoull(at, NULL, 10);
    assert_true(start > 0);
    snprintf(text, capacity, "joined %d %d %llu %s %s\n", rank, (int)getpid(), start, boot, host);
}

static void test_lines(void **state) {
    char *path = temp_folder_path(state, "m"), one[300], two[300], wanted[1000];
    char token[STORE_TOKEN_MAX + 1] = "";
    int port = 0;
    Error err = {0};
    const int before = count_descriptors();
    write_joined(one, sizeof one, 1);
    write_joined(two, sizeof two, 0);
    MeetingFile *first = join(path, 1);
    snprintf(wanted, sizeof wanted, "ddp.c meeting, world size 2\n%s", one);
    check_file(path, wanted);
    assert_null(meeting_file_join(path, 0, 3, soon(), &err));
    check_message(&err, ": the world size is 2 there and 3 at rank 0");
    check_file(path, wanted);
    err = (Error){0};
    assert_int_equal(meeting_file_await(first, &port, token, clock_ns(), &err), -1);
    assert_int_equal(err.status, STATUS_FAILED);
    check_message(&err, ": rank 0 has not come in time");
    MeetingFile *second = join(path, 0);
    err = (Error){0};
    CHECK_OK(meeting_file_publish(second, 4321, "a-token", soon(), &err) == 0, err);
    strcat(strcat(wanted, two), "store 4321 a-token\n");
    check_file(path, wanted);
    CHECK_OK(meeting_file_await(first, &port, token, 1, &err) == 0, err); // without waiting
    assert_int_equal(port, 4321);
    assert_string_equal(token, "a-token");
    meeting_file_leave(first);
    strcat(wanted, "left 1\n");
    check_file(path, wanted);
    meeting_file_leave(second);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(count_descriptors(), before);
    free(path);
}

static int mode_of(const char *path) {
    struct stat about;
    assert_int_equal(__real_stat(path, &about), 0);
    return about.st_mode & 0777;
}

// Only the owner can read the token: a file that exists is closed to others, and a new one is from
// the start.
static void test_mode(void **state) {
    char *path = temp_folder_path(state, "m");
    close(open(path, O_RDWR | O_CREAT, 0644));
    MeetingFile *f = join(path, 1);
    assert_int_equal(mode_of(path), 0600);
    meeting_file_leave(f);
    f = join(path, 1);
    assert_int_equal(mode_of(path), 0600);
    meeting_file_leave(f);
    Error err = {0};
    let_fail(FCHMOD, 0, EPERM);
    assert_null(meeting_file_join(path, 1, 2, soon(), &err));
    failing = NONE;
    assert_int_equal(mode_of(path), 0600);
    free(path);
}

// A token of the maximum length; a store's line without a token is invalid.
static void test_tokens(void **state) {
    char *path = temp_folder_path(state, "m"), longest[STORE_TOKEN_MAX + 1] = "";
    char token[STORE_TOKEN_MAX + 1] = "";
    int port = 0;
    Error err = {0};
    MeetingFile *f = join(path, 1);
    CHECK_OK(meeting_file_publish(f, 1, "", soon(), &err) == 0, err);
    assert_int_equal(meeting_file_await(f, &port, token, clock_ns(), &err), -1);
    meeting_file_leave(f);
    memset(longest, 't', STORE_TOKEN_MAX);
    f = join(path, 1);
    err = (Error){0};
    CHECK_OK(meeting_file_publish(f, 2, longest, soon(), &err) == 0, err);
    CHECK_OK(meeting_file_await(f, &port, token, clock_ns(), &err) == 0, err);
    assert_string_equal(token, longest);
    meeting_file_leave(f);
    free(path);
}

// A zombie process counts as gone.
static void test_zombie(void **state) {
    char *path = temp_folder_path(state, "m");
    Error err = {0};
    siginfo_t info;
    const pid_t pid = fork();
    if (pid == 0) _exit(meeting_file_join(path, 1, 2, soon(), &err) ? 0 : 1);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_null(meeting_file_join(path, 0, 2, soon(), &err));
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, "is stale: its rank 1 (pid ");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    free(path);
}

// ---- Calls ------------------------------------------------------------------------------------

static void test_calls_that_fail(void **state) {
    static const struct {
        Call call;
        int before, error;
        const char *says;
    } cases[] = {{FLOCK, 0, ENOLCK, "cannot lock it: No locks available"},
                 {PREAD, 0, EIO, "cannot read it: Input/output error"},
                 {WRITE, 0, ENOSPC, "cannot write to it: No space left on device"},
                 {WRITE, 1, ENOSPC, "cannot write to it: No space left on device"},
                 {WRITE, 1, 0, "cannot write to it: "},
                 {FSTAT, 0, EIO, "cannot open it: Input/output error"},
                 {FCHMOD, 0, EPERM, "cannot close it to others: Operation not permitted"}};
    char *path = temp_folder_path(state, "m");
    const int before = count_descriptors();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        let_fail(cases[i].call, cases[i].before, cases[i].error);
        assert_null(meeting_file_join(path, 0, 2, soon(), &err));
        failing = NONE;
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, path);
        check_message(&err, cases[i].says);
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(unlink(path), 0);
    }
    MeetingFile *f = join(path, 1);
    char token[STORE_TOKEN_MAX + 1];
    int port;
    Error err = {0};
    let_fail(PREAD, 0, EIO);
    assert_int_equal(meeting_file_await(f, &port, token, soon(), &err), -1);
    check_message(&err, "cannot read it: Input/output error");
    failing = NONE;
    meeting_file_leave(f);
    free(path);
}

// An interrupted flock is repeated. A file that is removed between open and flock, or whose fstat
// fails, is closed, and the path is opened again.
static void test_lock_and_look(void **state) {
    char *path = temp_folder_path(state, "m");
    const int before = count_descriptors();
    for (int i = 0; i < 5; i++) {
        locks = 0;
        if (i == 0) let_fail(FLOCK, 0, EINTR);
        if (i == 1) let_fail(STAT, 0, EIO);
        if (i == 2) let_fail(FSTAT, 1, EIO); // the second fstat, under the lock
        made_anew = i == 4;
        if (i >= 3) moved_path = path;
        MeetingFile *f = join(path, 1);
        failing = NONE;
        assert_int_equal(locks, i == 0 ? 1 : 2);
        assert_int_equal(count_descriptors(), before + 1);
        assert_int_equal(access(path, F_OK), 0);
        meeting_file_leave(f);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(count_descriptors(), before);
    }
    free(path);
}

// Each call takes and releases the lock, so that other ranks can join between calls.
static void test_lock_is_released(void **state) {
    char *path = temp_folder_path(state, "m"), token[STORE_TOKEN_MAX + 1];
    Error err = {0};
    int port;
    MeetingFile *f = join(path, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(__real_flock(fd, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(__real_flock(fd, LOCK_UN), 0);
        locks = 0;
        if (i == 0) (void)meeting_file_await(f, &port, token, clock_ns(), &err);
        if (i == 1) assert_int_equal(meeting_file_publish(f, 1, "t", soon(), &err), 0);
        assert_int_equal(locks, i < 2);
    }
    // The store's address is read under the lock only.
    assert_int_equal(__real_flock(fd, LOCK_EX), 0);
    assert_int_equal(meeting_file_await(f, &port, token, clock_ns(), &err), -1);
    assert_int_equal(__real_flock(fd, LOCK_UN), 0);
    err = (Error){0};
    assert_int_equal(meeting_file_await(f, &port, token, clock_ns(), &err), 0);
    meeting_file_leave(f);
    close(fd);
    free(path);
}

// Each call gives up at its deadline; leaving, which has none of its own, after 5 s.
static void test_deadlines(void **state) {
    enum { MS = 1000000 };
    char *path = temp_folder_path(state, "m"), token[STORE_TOKEN_MAX + 1];
    int port;
    Error err = {0};
    MeetingFile *f = join(path, 1);
    frozen = true;
    sleeps = 0;
    assert_int_equal(meeting_file_await(f, &port, token, clock_ns() + 12 * MS, &err), -1);
    assert_int_equal(sleeps, 3); // of 5 ms
    let_fail(FLOCK, 0, EWOULDBLOCK);
    times = INT_MAX;
    sleeps = 0;
    err = (Error){0};
    assert_int_equal(meeting_file_publish(f, 1, "t", clock_ns() + 3 * MS, &err), -1);
    check_message(&err, "another process keeps it locked");
    assert_int_equal(sleeps, 3); // of 1 ms
    sleeps = 0;
    meeting_file_leave(f);
    assert_int_equal(sleeps, 5000);
    assert_int_equal(unlink(path), 0); // it remained
    failing = NONE;
    f = join(path, 1);
    let_fail(FLOCK, 0, EWOULDBLOCK); // once
    meeting_file_leave(f);
    failing = NONE;
    frozen = false;
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

// A text that begins like a meeting file's and has a NUL.
static void test_no_text(void **state) {
    static const char text[] = "ddp.c meeting, world size 2\n\0";
    char *path = temp_folder_path(state, "m");
    FILE *file = fopen(path, "we");
    Error err = {0};
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, sizeof text, file), sizeof text);
    fclose(file);
    assert_null(meeting_file_join(path, 1, 2, soon(), &err));
    check_message(&err, "this file holds something else");
    free(path);
}

// If leaving cannot write its line, the file stays, and the next job reports it as stale.
static void test_leave_fails(void **state) {
    static const Call calls[] = {FLOCK, WRITE, PREAD};
    char *path = temp_folder_path(state, "m");
    const int before = count_descriptors();
    for (int i = 0; i < 3; i++) {
        MeetingFile *f = join(path, 1);
        let_fail(calls[i], 0, EIO);
        meeting_file_leave(f);
        failing = NONE;
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(unlink(path), 0);
    }
    free(path);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_lines),
        IN_FOLDER(test_mode),
        IN_FOLDER(test_tokens),
        IN_FOLDER(test_zombie),
        IN_FOLDER(test_calls_that_fail),
        IN_FOLDER(test_lock_and_look),
        IN_FOLDER(test_lock_is_released),
        IN_FOLDER(test_leave_fails),
        IN_FOLDER(test_deadlines),
        IN_FOLDER(test_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
