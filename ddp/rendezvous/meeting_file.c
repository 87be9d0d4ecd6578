/* meeting_file.c: see meeting_file.h. The lines:
 *
 *     ddp.c meeting, world size 4
 *     joined RANK PID START BOOT HOST
 *     store PORT TOKEN
 *     left RANK
 *
 * START is the process' start time: it detects a reused PID.
 *
 * Invariant: the holder of the lock on a file that is not unlinked reads complete lines.
 */
#include "ddp/rendezvous/meeting_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/memory.h"

enum { LOG_MAX = 65536, LOOK_MS = 5, LOCK_MS = 1, LEAVE_S = 5 };

#define TITLE "ddp.c meeting, world size "

struct MeetingFile {
    char *path;
    int fd, rank, world_size;
    char log[LOG_MAX]; // the file's text, as last read
};

// ---- Identity of a process

// The 22nd field of the main thread's stat in /proc, behind the 2nd, a name in parentheses with
// arbitrary characters. 0 if the process does not exist or is a zombie. Not /proc/PID/stat, which
// holds the same: qemu-user shows a process an invented one of its own.
static unsigned long long start_time(int pid) {
    char path[64], line[1024], state = 'X';
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
    machine_read_line(path, line, sizeof line);
    const char *end = strrchr(line, ')');
    if (!end || sscanf(end + 1,
                       " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                       "%*d %llu",
                       &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}

// ---- The lock and the text

static bool sleep_before(long ms, uint64_t deadline_ns) {
    struct timespec pause = {.tv_nsec = ms * 1000000};
    if (clock_ns() >= deadline_ns) return false;
    nanosleep(&pause, NULL);
    return true;
}

static int fail(const MeetingFile *f, const char *what, Error *err) {
    return error_set(err, STATUS_USAGE, "file://%s: %s: %s", f->path, what, strerror(errno));
}

// With a deadline, because the lock's holder may be stopped.
static int lock(MeetingFile *f, uint64_t deadline_ns, Error *err) {
    while (flock(f->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return fail(f, "cannot lock it", err);
        if (!sleep_before(LOCK_MS, deadline_ns))
            return error_set(err, STATUS_FAILED, "file://%s: another process keeps it locked",
                             f->path);
    }
    return 0;
}

static int read_log(MeetingFile *f, Error *err) {
    ssize_t bytes = pread(f->fd, f->log, sizeof f->log - 1, 0);
    if (bytes < 0) return fail(f, "cannot read it", err);
    f->log[bytes] = '\0';
    size_t title = strlen(TITLE);
    bool ours = bytes == 0 || strncmp(f->log, TITLE, title) == 0;
    if (ours && strlen(f->log) == (size_t)bytes && bytes < LOG_MAX - 1) return 0;
    return error_set(err, STATUS_USAGE, "file://%s: this file holds something else", f->path);
}

__attribute__((format(printf, 3, 4))) static int append(MeetingFile *f, Error *err,
                                                        const char *format, ...) {
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(f->fd, line, (size_t)length) == length) return 0;
    return fail(f, "cannot write to it", err);
}

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

// Ranks that joined and have not left.
static int count_guests(const MeetingFile *f) {
    int guests = 0;
    for (const char *line = f->log; *line; line = next_line(line)) {
        guests += strncmp(line, "joined ", 7) == 0;
        guests -= strncmp(line, "left ", 5) == 0;
    }
    return guests;
}

// ---- Joining

static int open_file(MeetingFile *f, Error *err) {
    struct stat about;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (f->fd < 0 || fstat(f->fd, &about) != 0) return fail(f, "cannot open it", err);
    if (!S_ISREG(about.st_mode))
        return error_set(err, STATUS_USAGE, "file://%s: this is no plain file", f->path);
    if (about.st_uid != geteuid())
        return error_set(err, STATUS_USAGE, "file://%s: this file belongs to another user",
                         f->path);
    return fchmod(f->fd, 0600) == 0 ? 0 : fail(f, "cannot close it to others", err);
}

// The last rank of an earlier job may have removed the file between open and lock.
static int open_locked(MeetingFile *f, uint64_t deadline_ns, Error *err) {
    for (;;) {
        struct stat mine, named;
        if (open_file(f, err) != 0 || lock(f, deadline_ns, err) != 0) return -1;
        if (fstat(f->fd, &mine) == 0 && stat(f->path, &named) == 0 && mine.st_ino == named.st_ino &&
            mine.st_dev == named.st_dev)
            return 0;
        close(f->fd);
    }
}

// Checks a "joined" line without "left": its process must be alive, and another rank.
static int check_guest(const MeetingFile *f, const char *line, Error *err) {
    int rank, pid;
    unsigned long long start;
    char boot[48], host[72], my_boot[48], my_host[72], left[32];
    if (sscanf(line, "joined %d %d %llu %47s %71s", &rank, &pid, &start, boot, host) != 5) return 0;
    snprintf(left, sizeof left, "\nleft %d\n", rank);
    if (strstr(line, left)) return 0; // behind this line: a rank may leave, and join again
    machine_boot_id(my_boot, sizeof my_boot);
    machine_name(my_host, sizeof my_host);
    bool same_boot = strcmp(boot, my_boot) == 0;
    if (!same_boot && strcmp(host, my_host) != 0)
        return error_set(err, STATUS_USAGE,
                         "file://%s: rank %d is on %s, rank %d on %s: on several hosts use tcp://",
                         f->path, rank, host, f->rank, my_host);
    if (!same_boot || start_time(pid) != start)
        return error_set(err, STATUS_USAGE,
                         "file://%s is stale: its rank %d (pid %d) is gone without having left: "
                         "remove the file, or use another path",
                         f->path, rank, pid);
    if (rank != f->rank) return 0;
    return error_set(err, STATUS_USAGE,
                     "two processes say that they are rank %d: pid %d and pid %d (file://%s)", rank,
                     pid, (int)getpid(), f->path);
}

static int check_log(const MeetingFile *f, Error *err) {
    int world_size = f->world_size;
    (void)sscanf(f->log, TITLE "%d", &world_size);
    if (world_size != f->world_size)
        return error_set(err, STATUS_USAGE,
                         "file://%s: the world size is %d there and %d at rank %d", f->path,
                         world_size, f->world_size, f->rank);
    for (const char *line = f->log; *line; line = next_line(line))
        if (check_guest(f, line, err) != 0) return -1;
    if (!*f->log || count_guests(f) > 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "file://%s is stale: all have left it: remove the file, or use another path",
                     f->path);
}

static int join_locked(MeetingFile *f, Error *err) {
    char boot[48], host[72];
    if (read_log(f, err) != 0 || check_log(f, err) != 0) return -1;
    if (!*f->log && append(f, err, TITLE "%d\n", f->world_size) != 0) return -1;
    machine_boot_id(boot, sizeof boot);
    machine_name(host, sizeof host);
    return append(f, err, "joined %d %d %llu %s %s\n", f->rank, (int)getpid(), start_time(getpid()),
                  boot, host);
}

static void close_file(MeetingFile *f) {
    if (f->fd >= 0) close(f->fd); // releases the lock
    free(f->path);
    free(f);
}

MeetingFile *meeting_file_join(const char *path, int rank, int world_size, uint64_t deadline_ns,
                               Error *err) {
    MeetingFile *f = memory_zalloc(sizeof *f);
    f->path = memory_format("%s", path);
    f->rank = rank;
    f->world_size = world_size;
    if (open_locked(f, deadline_ns, err) != 0 || join_locked(f, err) != 0) {
        close_file(f);
        return NULL;
    }
    (void)flock(f->fd, LOCK_UN);
    return f;
}

// ---- The store's address

int meeting_file_publish(MeetingFile *f, int port, const char *token, uint64_t deadline_ns,
                         Error *err) {
    if (lock(f, deadline_ns, err) != 0) return -1;
    int status = append(f, err, "store %d %s\n", port, token);
    (void)flock(f->fd, LOCK_UN);
    return status;
}

int meeting_file_await(MeetingFile *f, int *port, char token[STORE_TOKEN_MAX + 1],
                       uint64_t deadline_ns, Error *err) {
    _Static_assert(STORE_TOKEN_MAX == 64, "the width below");
    do {
        if (lock(f, deadline_ns, err) != 0) return -1;
        int status = read_log(f, err);
        (void)flock(f->fd, LOCK_UN);
        if (status != 0) return -1;
        const char *store = strstr(f->log, "\nstore ");
        if (store && sscanf(store, " store %d %64s", port, token) == 2) return 0;
    } while (sleep_before(LOOK_MS, deadline_ns));
    return error_set(err, STATUS_FAILED, "file://%s: rank 0 has not come in time", f->path);
}

// ---- Leaving

void meeting_file_leave(MeetingFile *f) {
    if (!f) return;
    Error ignored = {0}; // a file that remains is reported as stale by the next job
    if (lock(f, clock_ns() + LEAVE_S * 1000000000ull, &ignored) == 0 &&
        append(f, &ignored, "left %d\n", f->rank) == 0 && read_log(f, &ignored) == 0 &&
        count_guests(f) == 0)
        (void)unlink(f->path);
    close_file(f);
}
