/* spawn.c: see spawn.h. */
#include "ddp/launch/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/options.h"

// ---- The program's file

static bool is_program(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
}

static int explain_path(const char *path, Error *err) {
    struct stat about;
    const char *why = "is not executable";
    if (stat(path, &about) != 0)
        why = strerror(errno);
    else if (S_ISDIR(about.st_mode))
        why = "is a folder";
    return error_set(err, STATUS_USAGE, "cannot run %s: %s", path, why);
}

// Searches ddprun's own folder, where the build puts all programs.
static bool find_beside_me(const char *name, char path[PATH_MAX]) {
    ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (bytes <= 0 || !*name) return false;
    path[bytes] = '\0';
    char *end = strrchr(path, '/') + 1;
    size_t room = PATH_MAX - (size_t)(end - path);
    return (size_t)snprintf(end, room, "%s", name) < room && is_program(path);
}

// The program in ddprun's folder whose name is nearest to `name`; "" if none is near.
static void nearest_beside_me(const char *name, char nearest[NAME_MAX + 1]) {
    char path[PATH_MAX];
    struct dirent **entries;
    size_t best = SIZE_MAX;
    nearest[0] = '\0';
    if (!find_beside_me("ddprun", path)) return;
    *strrchr(path, '/') = '\0';
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *entry = entries[i]->d_name;
        const OptionWord word = {.start = entry, .length = (int)strlen(entry)};
        if (find_beside_me(entry, path) && options_is_near(name, word, &best))
            snprintf(nearest, NAME_MAX + 1, "%s", entry);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
}

int spawn_find_program(const char *name, char path[PATH_MAX], Error *err) {
    if (strchr(name, '/')) {
        if (!is_program(name)) return explain_path(name, err);
        snprintf(path, PATH_MAX, "%s", name);
        return 0;
    }
    const char *folders = getenv("PATH");
    if (!folders) folders = "/bin:/usr/bin";
    for (const char *at = folders; *name; at++) {
        size_t length = strcspn(at, ":");
        const char *separator = length ? "/" : ""; // an empty entry is the current folder
        int bytes = snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, at, separator, name);
        if (bytes < PATH_MAX && is_program(path)) return 0;
        at += length;
        if (!*at) break;
    }
    if (find_beside_me(name, path)) return 0;
    bool here = *name && is_program(name);
    char near[NAME_MAX + 1] = "";
    if (!here) nearest_beside_me(name, near);
    return error_set(err, STATUS_USAGE,
                     "cannot run '%s': there is no such program in PATH or beside ddprun%s%s%s",
                     format_quote(name).text,
                     here    ? "; to run the one in this folder write ./"
                     : *near ? "; did you mean "
                             : "",
                     here ? name : near, *near ? "?" : "");
}

// ---- The child

static void default_signals(void) {
    // SIGHUP is inherited: nohup's "ignore" holds for the ranks, too.
    const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) signal(numbers[i], SIG_DFL);
}

// Returns only on failure, with errno set.
static void become_rank(const Spawn *spawn, pid_t launcher, int stdout_fd, int stderr_fd) {
    (void)setpgid(0, 0);
    guard_watch(spawn->guard, getpid()); // before the rank can fork
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
    if (getppid() != launcher) _exit(127); // the launcher died before prctl
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, 0) < 0) return;
    if (dup2(stdout_fd, 1) < 0 || dup2(stderr_fd, 2) < 0) return;
    if (fcntl(spawn->inherited_fd, F_SETFD, 0) != 0) return;
    if (spawn->cores && sched_setaffinity(0, sizeof *spawn->cores, spawn->cores) != 0) return;
    if (setrlimit(RLIMIT_NOFILE, &spawn->descriptors) != 0) return;
    default_signals();
    (void)sigprocmask(SIG_SETMASK, &spawn->signal_mask, NULL);
    execve(spawn->path, spawn->argv, spawn->environment);
}

// ---- The parent

typedef struct Pipes {
    int out[2], err[2], status[2]; // status: errno of a failed exec, or end of file
} Pipes;

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void pipes_close(Pipes *p) {
    int *all[] = {&p->out[0], &p->out[1], &p->err[0], &p->err[1], &p->status[0], &p->status[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) close_fd(all[i]);
}

static int pipes_open(Pipes *p) {
    *p = (Pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
        pipe2(p->status, O_CLOEXEC) == 0)
        return 0;
    int cause = errno;
    pipes_close(p);
    errno = cause;
    return -1;
}

int spawn_rank(const Spawn *spawn, Spawned *spawned, Error *err) {
    Pipes pipes;
    pid_t launcher = getpid();
    pid_t pid = pipes_open(&pipes) == 0 ? fork() : -1;
    if (pid < 0) {
        int cause = errno;
        pipes_close(&pipes);
        return error_set(err, STATUS_FAILED, "cannot start a process: %s", strerror(cause));
    }
    if (pid == 0) {
        become_rank(spawn, launcher, pipes.out[1], pipes.err[1]);
        int cause = errno;
        guard_release(spawn->guard, getpid());
        ssize_t n = write(pipes.status[1], &cause, sizeof cause);
        _exit(n == sizeof cause ? 126 : 127);
    }
    (void)setpgid(pid, pid); // in parent and child, because either may run first
    close_fd(&pipes.out[1]);
    close_fd(&pipes.err[1]);
    close_fd(&pipes.status[1]);
    (void)fcntl(pipes.status[0], F_SETFL, O_NONBLOCK); // the read end only
    *spawned = (Spawned){pid, pipes.out[0], pipes.err[0], pipes.status[0]};
    return 0;
}

// End of file: exec or the rank's death closed the write end.
SpawnState spawn_poll(int start_fd, const char *path, Error *err) {
    int cause = 0;
    ssize_t n;
    do {
        n = read(start_fd, &cause, sizeof cause);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return SPAWN_STARTING;
    if (n == 0) return SPAWN_RUNS;
    if (n != sizeof cause) cause = EIO;
    const char *hint = cause == ENOEXEC ? " (a script needs a first line like #!/bin/sh)" : "";
    error_set(err, STATUS_USAGE, "cannot run %s: %s%s", path, strerror(cause), hint);
    return SPAWN_FAILED;
}
