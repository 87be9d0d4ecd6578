/* test_spawn.c: starting ranks (ddp/launch/spawn.c): the state that a rank inherits, and the pipe
 * that tells ddprun whether the program runs. System calls fail as the test requests.
 */
#include "tests/rigs/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "ddp/launch/launch.h"

static LaunchCause ended; // of the attempt; CAUSE_NONE: it is running

void launch_end_ranks(Launch *launch, LaunchCause cause, int signal_number) {
    assert_int_equal(signal_number, SIGTERM);
    launch->stage = LAUNCH_ENDING;
    ended = cause;
}

static int environment_of; // last local rank passed to launch_env_set
static int connected[2];   // pipes of the last rank
static int connected_rank;

void launch_env_set(const Launch *launch, int local_rank) {
    (void)launch;
    environment_of = local_rank;
}

// Runs in the rank's process.
void guard_tell(const Guard *guard, pid_t message) {
    if (write(guard->fd, &message, sizeof message) != sizeof message) _exit(99);
}

void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd) {
    (void)output;
    connected_rank = local_rank;
    connected[0] = stdout_fd;
    connected[1] = stderr_fd;
}

// The bytes in rank 1's start pipe, and the time since its fork.
typedef struct Start {
    size_t bytes;
    int error;
    bool closed; // the rank's end of the pipe
    double ago_s;
    const char *says; // the message; NULL: the program runs, or may do so later
} Start;

static void test_starts(void **state) {
    (void)state;
    static const Start starts[] = {
        {0, 0, false, 58, NULL},
        {0, 0, false, 61, "rank 5: /a/tool has not begun to run after 60 s"},
        {0, 0, true, 61, NULL},
        {sizeof(int), ENOENT, true, 1, "rank 5: cannot run /a/tool: No such file or directory"},
        {sizeof(int), ENOEXEC, false, 1,
         "rank 5: cannot run /a/tool: Exec format error (a script needs a first line like "
         "#!/bin/sh)"},
        {1, ENOENT, true, 1, "rank 5: cannot run /a/tool: Input/output error"},
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const Start *s = &starts[i];
        LaunchedRank ranks[2] = {{.start_fd = -1}, {.rank = 5}};
        Launch *launch = calloc(1, sizeof *launch);
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(ends[1], &s->error, s->bytes), s->bytes);
        if (s->closed) close(ends[1]);
        strcpy(launch->program, "/a/tool");
        launch->ranks = ranks;
        launch->starting = 3;
        ranks[1].start_fd = ends[0];
        ranks[1].heard_ns = clock_ns() - (uint64_t)(s->ago_s * 1e9);
        ended = CAUSE_NONE;
        launch_watch_start(launch, 0); // already running
        errno = EAGAIN;                // left by another call
        launch_watch_start(launch, 1);
        const bool waits = !s->closed && !s->says;
        assert_int_equal(launch->starting, waits ? 3 : 2);
        assert_int_equal(ranks[1].start_fd, waits ? ends[0] : -1);
        assert_int_equal(fcntl(ends[0], F_GETFD), waits ? FD_CLOEXEC : -1);
        assert_string_equal(launch->start_error.message, s->says ? s->says : "");
        const int status = i == 1 ? STATUS_FAILED : STATUS_USAGE;
        assert_int_equal(launch->start_error.status, s->says ? status : 0);
        assert_int_equal(ended, s->says ? CAUSE_START : CAUSE_NONE);
        if (waits) close(ends[0]);
        if (!s->closed) close(ends[1]);
        free(launch);
    }
}

// If several ranks cannot be started, the first one is reported, and the attempt is ended once.
static void test_first_error(void **state) {
    (void)state;
    LaunchedRank ranks[2] = {{.rank = 0}, {.rank = 1}};
    Launch *launch = calloc(1, sizeof *launch);
    const int error = EACCES;
    launch->ranks = ranks;
    launch->starting = 2;
    ended = CAUSE_NONE;
    for (int r = 0; r < 2; r++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(ends[1], &error, sizeof error), sizeof error);
        close(ends[1]);
        ranks[r].start_fd = ends[0];
        launch_watch_start(launch, r);
        assert_int_equal(ended, r == 0 ? CAUSE_START : CAUSE_NONE);
        ended = CAUSE_NONE;
        check_message(&launch->start_error, "rank 0: cannot run ");
    }
    assert_int_equal(launch->starting, 0);
    free(launch);
}

// ---- Starting ---------------------------------------------------------------------------------

typedef enum Call {
    NONE,
    PIPE,
    FORK,
    PRCTL,
    GETPPID,
    OPEN,
    DUP2,
    FCNTL,
    GETAFFINITY,
    SETAFFINITY,
    SETRLIMIT
} Call;

static Call failing; // fails with EMFILE
static int before;   // successful calls of it before the failure

static bool fails(Call call) {
    errno = EMFILE;
    return call == failing && before-- == 0;
}

#define REAL(type, name, ...) type __real_##name(__VA_ARGS__), __wrap_##name(__VA_ARGS__)

REAL(int, pipe2, int ends[2], int flags);
REAL(pid_t, fork, void);
REAL(int, prctl, int option, ...);
REAL(pid_t, getppid, void);
REAL(int, open, const char *path, int flags, ...);
REAL(int, dup2, int from, int to);
REAL(int, fcntl, int fd, int command, ...);
REAL(int, sched_getaffinity, pid_t pid, size_t size, cpu_set_t *cores);
REAL(int, sched_setaffinity, pid_t pid, size_t size, const cpu_set_t *cores);
REAL(int, setrlimit, __rlimit_resource_t resource, const struct rlimit *limit);

int __wrap_pipe2(int ends[2], int flags) {
    return fails(PIPE) ? -1 : __real_pipe2(ends, flags);
}

pid_t __wrap_fork(void) {
    return fails(FORK) ? -1 : __real_fork();
}

int __wrap_prctl(int option, ...) {
    va_list arguments;
    va_start(arguments, option);
    const unsigned long value = va_arg(arguments, unsigned long);
    va_end(arguments);
    return fails(PRCTL) ? -1 : __real_prctl(option, value);
}

pid_t __wrap_getppid(void) {
    return fails(GETPPID) ? 1 : __real_getppid();
}

int __wrap_open(const char *path, int flags, ...) {
    return fails(OPEN) ? -1 : __real_open(path, flags);
}

int __wrap_dup2(int from, int to) {
    return fails(DUP2) ? -1 : __real_dup2(from, to);
}

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const int value = va_arg(arguments, int);
    va_end(arguments);
    return command == F_SETFD && fails(FCNTL) ? -1 : __real_fcntl(fd, command, value);
}

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores) {
    return fails(GETAFFINITY) ? -1 : __real_sched_getaffinity(pid, size, cores);
}

int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *cores) {
    return fails(SETAFFINITY) ? -1 : __real_sched_setaffinity(pid, size, cores);
}

int __wrap_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    return fails(SETRLIMIT) ? -1 : __real_setrlimit(resource, limit);
}

static LaunchOptions options;
static Launch launch;
static int guard_end; // messages of ranks to the guard

static void launch_begin(int ranks, char **command) {
    int ends[2];
    Error err = {0};
    failing = NONE;
    ended = CAUSE_NONE;
    options = (LaunchOptions){.local_ranks = ranks, .command = command, .bind_cores = true};
    launch = (Launch){.options = &options, .program = "/bin/sh"};
    CHECK_OK(heartbeat_board_open(&launch.board, ranks, &err) == 0, err);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    guard_end = ends[0];
    launch.guard.fd = ends[1];
    launch.ranks = calloc((size_t)ranks, sizeof *launch.ranks);
    for (int r = 0; r < ranks; r++) launch.ranks[r] = (LaunchedRank){.rank = 5 + r, .start_fd = -1};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &launch.old_descriptors), 0);
    sigprocmask(SIG_SETMASK, NULL, &launch.old_mask);
}

static void launch_end(void) {
    close(guard_end);
    close(launch.guard.fd);
    heartbeat_board_close(&launch.board);
    free(launch.ranks);
}

static pid_t guard_hears(void) {
    pid_t message = 0;
    assert_int_equal(read(guard_end, &message, sizeof message), sizeof message);
    return message;
}

// Waits until the start of rank r has succeeded or failed.
static void await_start(int r) {
    struct pollfd entry = {.fd = launch.ranks[r].start_fd, .events = POLLIN};
    assert_int_equal(poll(&entry, 1, 60000), 1);
    launch_watch_start(&launch, r);
    assert_int_equal(launch.ranks[r].start_fd, -1);
}

static int count_descriptors(pid_t pid, bool found[16]) {
    char path[40];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)); count += entry->d_name[0] != '.')
        if (entry->d_name[0] != '.' && found && atoi(entry->d_name) < 16)
            found[atoi(entry->d_name)] = true;
    closedir(folder);
    return count;
}

static void close_connected(void) {
    close(connected[0]);
    close(connected[1]);
}

// A call that fails in the rank's process is reported with its errno, and the rank is given up.
static void test_calls_that_fail(void **state) {
    (void)state;
    static const struct {
        Call call;
        int before;
    } cases[] = {{PRCTL, 0}, {OPEN, 0},        {DUP2, 0},        {DUP2, 1},      {DUP2, 2},
                 {FCNTL, 0}, {GETAFFINITY, 0}, {SETAFFINITY, 0}, {SETRLIMIT, 0}, {GETPPID, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = 0;
        launch_begin(1, (char *[]){"sh", "-c", "exit 55", NULL});
        const bool orphan = cases[i].call == GETPPID; // the launcher is gone: no report
        failing = cases[i].call;
        before = cases[i].before;
        launch_start_some(&launch);
        failing = NONE;
        const pid_t pid = launch.ranks[0].pid;
        await_start(0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (orphan ? 127 : 126))
            fail_msg("case %zu: status %d", i, status);
        assert_string_equal(launch.start_error.message,
                            orphan ? "" : "rank 5: cannot run /bin/sh: Too many open files");
        assert_int_equal(ended, orphan ? CAUSE_NONE : CAUSE_START);
        assert_int_equal(guard_hears(), pid);
        if (!orphan) assert_int_equal(guard_hears(), -pid);
        close_connected();
        launch_end();
    }
}

// If fork or a pipe fails, there is no process, and no descriptor leaks.
static void test_no_process(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        launch_begin(2, (char *[]){"sh", "-c", "exit 0", NULL});
        const int open_before = count_descriptors(getpid(), NULL);
        failing = i < 3 ? PIPE : FORK;
        before = i < 3 ? i : 0;
        launch_start_some(&launch);
        assert_int_equal(count_descriptors(getpid(), NULL), open_before);
        assert_string_equal(launch.start_error.message,
                            "rank 5: cannot start a process: Too many open files");
        assert_int_equal(launch.started, 1); // no further rank is started
        assert_int_equal(launch.alive, 0);
        assert_int_equal(launch.starting, 0);
        assert_int_equal(ended, CAUSE_START);
        launch_end();
    }
}

// Signals 1 to 15 of a set in /proc/PID/status: bit n - 1 is signal n.
static unsigned signals_of(pid_t pid, const char *set) {
    char path[40], line[200];
    unsigned long long mask = ~0ull;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, set, strlen(set)) == 0) mask = strtoull(line + strlen(set), NULL, 16);
    fclose(file);
    return (unsigned)(mask & 0x7fff);
}

static void check_rank(int r, pid_t pid) {
    struct rlimit limit;
    cpu_set_t all, mine;
    bool found[16] = {false};
    assert_int_equal(count_descriptors(pid, found), 4); // 0 to 2 and the heartbeat page
    assert_true(found[0] && found[1] && found[2] && found[launch.board.fd]);
    assert_int_equal(signals_of(pid, "SigBlk:"), 1 << (SIGUSR1 - 1)); // restored
    const unsigned reset = 1u << (SIGINT - 1) | 1u << (SIGQUIT - 1) | 1u << (SIGTERM - 1) |
                           1u << (SIGPIPE - 1) | 1u << (SIGHUP - 1);
    assert_int_equal(signals_of(pid, "SigIgn:") & reset, 1 << (SIGHUP - 1));
    assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &limit), 0);
    assert_int_equal(limit.rlim_cur, launch.old_descriptors.rlim_cur);
    assert_int_equal(getpgid(pid), pid);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(sched_getaffinity(pid, sizeof mine, &mine), 0);
    cpu_set_t share;
    cores_share(&all, r, 2, &share);
    assert_true(CPU_EQUAL(&mine, &share));
}

// A rank's inherited state, and the launcher's descriptors for it.
static void test_what_a_rank_inherits(void **state) {
    (void)state;
    sigset_t blocked, others;
    // Descriptors inherited by this process are not counted. sh saves descriptor 2 while its own
    // command redirects it, so that command runs in a subshell.
    for (int fd = 3; fd < 1024; fd++) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    launch_begin(2, (char *[]){"sh", "-c", "echo out; (echo err >&2); exec sleep 100", NULL});
    launch.old_descriptors.rlim_cur -= 1;
    sigemptyset(&launch.old_mask);
    sigaddset(&launch.old_mask, SIGUSR1);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &others);
    const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
    for (int i = 0; i < 5; i++) signal(signals[i], SIG_IGN);
    for (int r = 0; r < 2; r++) {
        char text[8] = "";
        const uint64_t now = clock_ns();
        options.local_ranks = r + 1;
        launch_start_some(&launch);
        options.local_ranks = 2;
        const LaunchedRank *rank = &launch.ranks[r];
        assert_int_equal(launch.alive, r + 1);
        assert_int_equal(launch.starting, 1);
        assert_int_equal(getpgid(rank->pid), rank->pid); // set before launch_start returns
        assert_int_equal(rank->fate, RANK_ALIVE);
        assert_true(rank->heard_ns >= now);
        assert_int_equal(environment_of, r);
        assert_int_equal(connected_rank, r);
        await_start(r);
        for (int i = 0; i < 2; i++) {
            struct pollfd entry = {.fd = connected[i], .events = POLLIN};
            assert_int_equal(poll(&entry, 1, 60000), 1);
            assert_int_equal(read(connected[i], text, sizeof text), 4);
            assert_memory_equal(text, i == 0 ? "out\n" : "err\n", 4);
            assert_int_equal(read(connected[i], text, sizeof text), -1); // is non-blocking
        }
        assert_int_equal(guard_hears(), rank->pid);
    }
    for (int r = 0; r < 2; r++) {
        // The second rank was started while two were counted, the first while one was.
        if (r == 1) check_rank(r, launch.ranks[r].pid);
        kill(launch.ranks[r].pid, SIGKILL);
        assert_int_equal(waitpid(launch.ranks[r].pid, NULL, 0), launch.ranks[r].pid);
    }
    for (int i = 0; i < 5; i++) signal(signals[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &others, NULL);
    close_connected();
    launch_end();
}

// At most sixteen ranks are starting at the same time.
static void test_starts_at_a_time(void **state) {
    (void)state;
    enum { RANKS = STARTS_AT_A_TIME + 2 };
    launch_begin(RANKS, (char *[]){"sh", "-c", "exit 0", NULL});
    options.bind_cores = false;
    launch_start_some(&launch);
    assert_int_equal(launch.started, STARTS_AT_A_TIME);
    launch_start_some(&launch);
    assert_int_equal(launch.started, STARTS_AT_A_TIME);
    await_start(3);
    launch_start_some(&launch);
    assert_int_equal(launch.started, STARTS_AT_A_TIME + 1);
    await_start(0);
    launch.stage = LAUNCH_ENDING;
    launch_start_some(&launch);
    assert_int_equal(launch.started, STARTS_AT_A_TIME + 1); // no start after a failure
    launch.stage = LAUNCH_RUNNING;
    launch_start_some(&launch);
    await_start(1);
    launch_start_some(&launch); // all have been started
    assert_int_equal(launch.started, RANKS);
    for (int r = 0; r < RANKS; r++) {
        if (launch.ranks[r].start_fd >= 0) await_start(r);
        assert_int_equal(waitpid(launch.ranks[r].pid, NULL, 0), launch.ranks[r].pid);
    }
    assert_int_equal(launch.starting, 0);
    launch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_first_error),
        cmocka_unit_test(test_calls_that_fail),
        cmocka_unit_test(test_no_process),
        cmocka_unit_test(test_what_a_rank_inherits),
        cmocka_unit_test(test_starts_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
