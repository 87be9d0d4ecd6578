/* lock.c: see lock.h.
 *
 * The holder may remove the file after another process has opened it, and a lock on an unlinked
 * file excludes no process. So the lock counts only if the file still has a name.
 */
#include "common/base/lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/machine.h"
#include "common/base/memory.h"

enum { MOST_OF_A_COMMAND = 80, TEXT_MAX = 512 };

static const char BEGIN[] = "process "; // of the file's text

static const double DYING_S = 1; // a killed process may hold its lock while its memory is freed

struct FileLock {
    char *path;
    int fd;
    bool held;
};

static bool has_name(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

// False for a file with other contents: it is the user's and must not be overwritten.
static bool is_lock_file(int fd) {
    char begin[sizeof BEGIN - 1];
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    return info.st_size == 0 || (pread(fd, begin, sizeof begin, 0) == sizeof begin &&
                                 memcmp(begin, BEGIN, sizeof begin) == 0);
}

static bool has_no_locks(int cause) {
    return cause == ENOLCK || cause == EOPNOTSUPP || cause == ENOSYS || cause == EINVAL;
}

// Opens and locks the file. Returns -1 if it cannot be opened or if another process holds the lock
// for DYING_S; errno is EWOULDBLOCK then. *held is false if the file system has no locks, as some
// network file systems.
static int open_locked(const char *path, bool *held) {
    const struct timespec pause = {.tv_nsec = 20000000};
    uint64_t deadline = clock_ns_after(DYING_S);
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0) return -1;
        *held = flock(fd, LOCK_EX | LOCK_NB) == 0;
        const int cause = errno;
        if (*held ? has_name(fd) : has_no_locks(cause)) return fd;
        close(fd);
        if (*held) continue; // the previous holder has removed the file
        if (cause != EWOULDBLOCK || clock_ns() >= deadline) {
            errno = cause;
            return -1;
        }
        nanosleep(&pause, NULL);
    }
}

// Reads a file of one line: NULs between words become spaces, unprintable characters '?'. The text
// is empty if the file cannot be read.
static void read_text(const char *path, char *text, size_t capacity) {
    FILE *file = file_open_stream(path, NULL, NULL);
    size_t length = 0;
    if (file) {
        length = fread(text, 1, capacity - 1, file);
        fclose(file);
    }
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\0')) length--;
    text[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)text[i])) text[i] = text[i] == '\0' ? ' ' : '?';
}

FileLock *lock_take(const char *path, const char *what, Error *err) {
    bool held;
    int fd = open_locked(path, &held), cause = errno;
    if (fd >= 0 && !is_lock_file(fd)) {
        close(fd);
        fd = -1;
        cause = EEXIST;
    }
    if (fd < 0 && cause != EWOULDBLOCK)
        return error_null(err, STATUS_USAGE, "%s: cannot make %s: %s", what, path, strerror(cause));
    if (fd < 0) {
        char holder[TEXT_MAX];
        read_text(path, holder, sizeof holder);
        return error_null(err, STATUS_USAGE,
                          "%s: in use by %s; wait until it ends, or choose another name", what,
                          *holder ? holder : "another process");
    }
    // The text is only informative: the lock holds even if it cannot be written.
    char host[256], command[MOST_OF_A_COMMAND + 1];
    machine_name(host, sizeof host);
    read_text("/proc/self/cmdline", command, sizeof command);
    if (ftruncate(fd, 0) == 0)
        (void)dprintf(fd, "%s%ld on %s: %s\n", BEGIN, (long)getpid(), host, command);
    FileLock *lock = memory_zalloc(sizeof *lock);
    *lock = (FileLock){.path = memory_format("%s", path), .fd = fd, .held = held};
    return lock;
}

bool lock_is_held(const FileLock *lock) {
    return lock->held;
}

void lock_release(FileLock *lock) {
    if (!lock) return;
    if (lock->held && has_name(lock->fd)) unlink(lock->path); // before the lock is released
    close(lock->fd);
    free(lock->path);
    free(lock);
}
