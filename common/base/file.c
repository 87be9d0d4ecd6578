/* file.c: files that are whole or absent when they are written, and regular when they are read.
 *
 * The steps and why each is needed: the temporary file lies in the target's folder, because rename
 * is atomic only within a file system; fsync before rename, because otherwise a power cut can leave
 * the new name with no contents; fsync of the folder after it, because the name itself is data
 * there.
 *
 * A writer holds a lock (flock) on its temporary file. The lock ends with the process, so a
 * temporary file that can be locked belongs to a dead one, whichever process has its number today.
 */
#include "common/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; // as many as the kernel follows

typedef char Path[FILE_PATH_MAX];

// Opens a new file path.PID.N.tmp; PID and N distinguish processes and threads that write the
// same path.
static int open_temporary(AtomicFile *f) {
    for (int n = 0; n < 100; n++) {
        snprintf(f->temporary, sizeof f->temporary, "%s.%ld.%d.tmp", f->path, (long)getpid(), n);
        int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return fd;
        // On a file system without locks file_sweep cannot lock either, and so removes no file.
        struct stat info;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && fstat(fd, &info) == 0 && info.st_nlink > 0) return fd;
        close(fd); // removed by another process's file_sweep before it was locked
    }
    errno = EEXIST;
    return -1;
}

static int too_long(const char *path, Error *err) {
    return error_set(err, STATUS_USAGE, "%.60s...: the path is too long", path);
}

int file_follow_links(const char *path, char target[FILE_PATH_MAX], Error *err) {
    Path link;
    if (strlen(path) >= FILE_PATH_MAX) return too_long(path, err);
    strcpy(target, path);
    for (int links = 0; links <= MOST_LINKS; links++) {
        ssize_t length = readlink(target, link, sizeof link);
        if (length < 0) return 0; // not a link, or no such file
        const char *slash = strrchr(target, '/');
        size_t folder = slash && link[0] != '/' ? (size_t)(slash - target) + 1 : 0;
        if (folder + (size_t)length >= FILE_PATH_MAX) return too_long(path, err);
        memcpy(target + folder, link, (size_t)length);
        target[folder + (size_t)length] = '\0';
    }
    return error_set(err, STATUS_USAGE, "cannot write %s: %s", path, strerror(ELOOP));
}

int file_begin(AtomicFile *f, const char *path, Error *err) {
    f->file = NULL;
    if (!*path) return error_set(err, STATUS_USAGE, "cannot write '': a file needs a name");
    if (file_follow_links(path, f->path, err) != 0) return -1;
    struct stat info;
    // rename would replace a device (/dev/null!) by the file.
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return error_set(err, STATUS_USAGE, "cannot write %s: it is not a regular file", path);
    int fd = open_temporary(f);
    if (fd < 0) return error_set(err, STATUS_USAGE, "cannot write %s: %s", path, strerror(errno));
    f->file = fdopen(fd, "wb");
    CHECK(f->file, "no stream for %s: %s", path, strerror(errno));
    return 0;
}

// EINVAL: a file system without fsync.
static bool synced(int fd) {
    return fsync(fd) == 0 || errno == EINVAL;
}

static bool sync_folder(const char *path) {
    Path copy;
    int fd = open(dirname(strcpy(copy, path)), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES; // writable but not readable: cannot be synced
    bool ok = synced(fd);
    close(fd);
    return ok;
}

const char *file_cause(int cause, char text[FILE_CAUSE_ROOM]) {
    struct rlimit limit;
    if (cause == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text, FILE_CAUSE_ROOM,
                 "%s: files are limited to %zu KiB (ulimit -f) -- raise the limit", strerror(cause),
                 (size_t)limit.rlim_cur >> 10);
    else
        snprintf(text, FILE_CAUSE_ROOM, "%s", strerror(cause));
    return text;
}

int file_commit(AtomicFile *f, Error *err) {
    int lock = fcntl(fileno(f->file), F_DUPFD_CLOEXEC, 0); // held until the file has its name
    // fflush first, because it sets errno; ferror only says that an earlier write failed.
    errno = 0;
    bool ok = fflush(f->file) == 0 && !ferror(f->file) && synced(fileno(f->file));
    int cause = errno;
    bool finished =
        fclose(f->file) == 0 && ok && rename(f->temporary, f->path) == 0 && sync_folder(f->path);
    f->file = NULL;
    if (ok && !finished) cause = errno;
    if (lock >= 0) close(lock);
    if (finished) {
        file_sweep(f->path);
        return 0;
    }
    unlink(f->temporary);
    char why[FILE_CAUSE_ROOM];
    return error_set(err, STATUS_FAILED, "cannot write %s: %s", f->path,
                     cause ? file_cause(cause, why) : "a write failed");
}

void file_abandon(AtomicFile *f) {
    if (!f->file) return;
    fclose(f->file);
    unlink(f->temporary);
    f->file = NULL;
}

// Whether the entry is "NAME.PID.N.tmp".
static bool is_temporary_of(const char *name, const char *entry) {
    const size_t length = strlen(name);
    int end = 0;
    if (strncmp(entry, name, length) != 0) return false;
    sscanf(entry + length, ".%*[0-9].%*[0-9].tmp%n", &end);
    return end > 0 && entry[length + (size_t)end] == '\0';
}

void file_sweep(const char *path) {
    Path copy;
    if (strlen(path) >= sizeof copy) return;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    DIR *entries = opendir(dirname(strcpy(copy, path)));
    if (!entries) return; // not readable
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (!is_temporary_of(name, entry->d_name)) continue;
        int fd = openat(dirfd(entries), entry->d_name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(entries), entry->d_name, 0);
        close(fd);
    }
    closedir(entries);
}

// ---- reading ------------------------------------------------------------------------------------

int file_open(const char *path, size_t *bytes, Error *err) {
    struct stat info;
    // O_NONBLOCK: opening a FIFO does not wait for its writer. A socket cannot be opened (ENXIO).
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 ? fstat(fd, &info) != 0 : errno != ENXIO || stat(path, &info) != 0) {
        const int cause = errno;
        if (fd >= 0) close(fd);
        if (cause == ENAMETOOLONG) return too_long(path, err);
        return error_set(err, STATUS_USAGE, "%s: %s", *path ? path : "''", strerror(cause));
    }
    if (S_ISREG(info.st_mode)) {
        if (bytes) *bytes = (size_t)info.st_size;
        return fd;
    }
    if (fd >= 0) close(fd);
    const mode_t mode = info.st_mode;
    return error_set(err, STATUS_USAGE, "%s: is a %s, not a regular file", path,
                     S_ISDIR(mode)    ? "folder"
                     : S_ISFIFO(mode) ? "FIFO"
                     : S_ISSOCK(mode) ? "socket"
                                      : "device");
}

FILE *file_open_stream(const char *path, size_t *bytes, Error *err) {
    int fd = file_open(path, bytes, err);
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    CHECK(fd < 0 || file, "no stream for %s: %s", path, strerror(errno));
    return file;
}

bool file_exists(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *path = NULL;
    CHECK(vasprintf(&path, format, args) >= 0, "no memory for a path: %s", format);
    va_end(args);
    const bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

// ---- folders ------------------------------------------------------------------------------------

int file_make_folder(const char *path, Error *err) {
    if (!*path) return error_set(err, STATUS_USAGE, "cannot make '': a folder needs a name");
    Path part;
    if (strlen(path) >= sizeof part) return too_long(path, err);
    strcpy(part, path);
    size_t length = strlen(part);
    for (size_t i = 1; i <= length; i++) { // at the end of each component
        if (part[i] != '/' && part[i] != '\0') continue;
        char end = part[i];
        part[i] = '\0';
        // For an existing folder mkdir fails with EEXIST, EROFS or EACCES: stat decides.
        struct stat info;
        (void)mkdir(part, 0777);
        const int cause = errno;
        if (stat(part, &info) != 0 || !S_ISDIR(info.st_mode))
            return error_set(err, STATUS_USAGE, "cannot make the folder %s: %s", part,
                             cause == EEXIST ? "a file has that name" : strerror(cause));
        part[i] = end;
    }
    return 0;
}
