/* spawn.c: starts the ranks of an attempt: fork, prepare, exec, at most STARTS_AT_A_TIME at a time
 * (ddp/launch/launch.h).
 *
 * A rank leads its own process group, is killed by the kernel if the launcher dies, reads
 * /dev/null, writes into two pipes, and inherits no descriptor but the heartbeat page's. Between
 * fork and exec only async-signal-safe functions are called, because the launcher's store has a
 * thread.
 *
 * fork returns at once; exec may take long, if the file is read over a network. The supervision's
 * loop polls the starting ranks with everything else, so that signals and deaths are handled while
 * ranks are still to be started; after a failure those are not started.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "ddp/launch/launch.h"

#define START_S 60.0 // time-out of exec: the program may be on a network's file system

// ---- The child

enum { PIPE_STDOUT, PIPE_STDERR, PIPE_STATUS, PIPES }; // status: errno of a failed exec, or EOF

// Returns only on failure, with errno set.
static void become_rank(const Launch *launch, int r, pid_t launcher, int pipes[PIPES][2]) {
    (void)setpgid(0, 0);
    guard_tell(&launch->guard, getpid()); // before the rank can fork
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
    if (getppid() != launcher) _exit(127); // the launcher died before prctl
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, 0) < 0) return;
    if (dup2(pipes[PIPE_STDOUT][1], 1) < 0 || dup2(pipes[PIPE_STDERR][1], 2) < 0) return;
    if (fcntl(launch->board.fd, F_SETFD, 0) != 0) return;
    if (launch->options->bind_cores) {
        cpu_set_t all, share; // the launcher's cores, and the rank's share of them
        if (sched_getaffinity(0, sizeof all, &all) != 0) return;
        cores_share(&all, r, launch->options->local_ranks, &share);
        if (sched_setaffinity(0, sizeof share, &share) != 0) return;
    }
    if (setrlimit(RLIMIT_NOFILE, &launch->old_descriptors) != 0) return;
    // SIGHUP is inherited: nohup's "ignore" holds for the ranks, too.
    const int defaults[] = {SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) signal(defaults[i], SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &launch->old_mask, NULL);
    execve(launch->program, launch->options->command, environ);
}

// ---- The parent

// Forks and opens the pipes. The parent keeps their read ends, none on failure. Returns as fork
// does.
static pid_t fork_rank(int pipes[PIPES][2]) {
    int opened = 0;
    while (opened < PIPES && pipe2(pipes[opened], O_CLOEXEC) == 0) opened++;
    pid_t pid = opened == PIPES ? fork() : -1;
    int cause = errno;
    for (int i = 0; i < opened && pid != 0; i++) {
        close(pipes[i][1]);
        (void)fcntl(pipes[i][0], F_SETFL, O_NONBLOCK); // the rank's writes block
        if (pid == -1) close(pipes[i][0]);
    }
    errno = cause;
    return pid;
}

static int start_rank(Launch *launch, int r, Error *err) {
    LaunchedRank *rank = &launch->ranks[r];
    int pipes[PIPES][2];
    const pid_t launcher = getpid();
    launch_env_set(launch, r);
    pid_t pid = fork_rank(pipes);
    if (pid < 0)
        return error_set(err, STATUS_FAILED, "cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        become_rank(launch, r, launcher, pipes);
        int cause = errno;
        guard_tell(&launch->guard, -getpid());
        ssize_t n = write(pipes[PIPE_STATUS][1], &cause, sizeof cause);
        _exit(n == sizeof cause ? 126 : 127);
    }
    (void)setpgid(pid, pid); // in parent and child, because either may run first
    rank->pid = pid;
    rank->start_fd = pipes[PIPE_STATUS][0];
    rank->fate = RANK_ALIVE;
    rank->heard_ns = clock_ns();
    launch->alive++;
    launch->starting++;
    output_connect(launch->output, r, pipes[PIPE_STDOUT][0], pipes[PIPE_STDERR][0]);
    return 0;
}

static void fail_start(Launch *launch, int r, const Error *cause) {
    error_set(&launch->start_error, cause->status, "rank %d: %s", launch->ranks[r].rank,
              cause->message); // error_set keeps the first error
    if (launch->stage == LAUNCH_RUNNING) launch_end_ranks(launch, CAUSE_START, SIGTERM);
}

void launch_watch_start(Launch *launch, int r) {
    LaunchedRank *rank = &launch->ranks[r];
    if (rank->start_fd < 0) return;
    Error err = {0};
    int cause = 0;
    ssize_t n = read(rank->start_fd, &cause, sizeof cause);
    if (n < 0 && errno == EAGAIN) {
        if (clock_seconds_since(rank->heard_ns) <= START_S) return;
        error_set(&err, STATUS_FAILED, "%s has not begun to run after %g s", launch->program,
                  START_S);
    } else if (n != 0) { // 0: exec or the rank's death closed the write end
        if (n != sizeof cause) cause = EIO;
        const char *hint = cause == ENOEXEC ? " (a script needs a first line like #!/bin/sh)" : "";
        error_set(&err, STATUS_USAGE, "cannot run %s: %s%s", launch->program, strerror(cause),
                  hint);
    }
    close(rank->start_fd);
    rank->start_fd = -1;
    launch->starting--;
    if (err.status != 0) fail_start(launch, r, &err);
}

void launch_start_some(Launch *launch) {
    while (launch->stage == LAUNCH_RUNNING && launch->started < launch->options->local_ranks &&
           launch->starting < STARTS_AT_A_TIME) {
        Error err = {0};
        int r = launch->started++;
        if (start_rank(launch, r, &err) != 0) fail_start(launch, r, &err);
    }
}
