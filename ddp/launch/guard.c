/* guard.c: a process that kills the ranks' descendants if the launcher dies of SIGKILL.
 *
 * In that case the kernel kills the ranks (PR_SET_PDEATHSIG), but not their children: in
 * `ddprun sh -c 'train_ddp; ...'` the trainer is the shell's child. The launcher writes to a pipe
 * which process groups it has started and which have ended. At end of file the guard kills all
 * groups that are left. Limit: a process that called setsid has left its group and survives.
 *
 * A message is one number: a process group to watch, or the negative of a group to release.
 * Messages are shorter than PIPE_BUF, so writes of several processes are atomic.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/launch/launch.h"

// ---- The guard's process

_Noreturn static void stand_guard(int pipe_fd) {
    pid_t groups[LAUNCH_RANKS_MAX], message = 0;
    size_t count = 0;
    // Leaves the launcher's process group and terminal, whose signals the guard ignores.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "ddprun-guard");
    // If the guard is stopped when the launcher dies, the kernel continues it.
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT);
    // Closes all of the launcher's descriptors: a reader of its console waits for end of file, and
    // its port must become free.
    (void)dup2(pipe_fd, 0);
    (void)close_range(1, ~0u, 0);
    for (;;) {
        ssize_t n = read(0, &message, sizeof message);
        if (n < 0 && errno == EINTR) continue;
        if (n != sizeof message) break;
        size_t g = 0;
        while (g < count && groups[g] != abs(message)) g++;
        if (message > 0 && g == count && g < LAUNCH_RANKS_MAX) groups[count++] = message;
        if (message < 0 && g < count) groups[g] = groups[--count];
    }
    for (size_t i = 0; i < count; i++) kill(-groups[i], SIGKILL);
    _exit(0);
}

// ---- The launcher's side

int guard_open(Guard *guard, Error *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(err, STATUS_FAILED, "cannot open the guard's pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) stand_guard(ends[0]);
    close(ends[0]);
    if (pid > 0) {
        *guard = (Guard){.pid = pid, .fd = ends[1]};
        return 0;
    }
    error_set(err, STATUS_FAILED, "cannot start the guard: %s", strerror(errno));
    close(ends[1]);
    return -1;
}

// A failure is ignored: without the guard only the case above, SIGKILL, is unprotected.
void guard_tell(const Guard *guard, pid_t message) {
    ssize_t n = write(guard->fd, &message, sizeof message);
    (void)n;
}

void guard_close(Guard *guard) {
    if (guard->pid == 0) return;
    close(guard->fd);
    kill(guard->pid, SIGCONT); // a stopped guard would not end
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) continue;
}
