/* file.c: files that are either whole or not there.
 *
 * The steps and why each is needed: the temporary file lies in the target's folder, because rename
 * is atomic only within a file system; fsync before rename, because otherwise a power cut can leave
 * the new name with no contents; fsync of the folder after it, because the name itself is data
 * there.
 */
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Opens a new file path.PID.N.tmp; PID and N keep processes and threads that write the same path
// apart.
static int open_temporary(AtomicFile *f) {
    for (int n = 0; n < 100; n++) {
        snprintf(f->temporary, sizeof f->temporary, "%s.%ld.%d.tmp", f->path, (long)getpid(), n);
        int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

int file_begin(AtomicFile *f, const char *path, Error *err) {
    f->file = NULL;
    if (strlen(path) >= sizeof f->path) {
        return error_set(err, STATUS_USAGE, "%.60s...: the path is too long", path);
    }
    strcpy(f->path, path);
    struct stat info;
    // rename would replace a device (/dev/null!) as readily as a file.
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return error_set(err, STATUS_USAGE, "cannot write %s: it is not a regular file", path);
    }
    int fd = open_temporary(f);
    if (fd >= 0) f->file = fdopen(fd, "wb");
    if (f->file) return 0;
    error_set(err, STATUS_USAGE, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(f->temporary);
    }
    return -1;
}

// Some file systems cannot fsync (EINVAL); they offer no more safety than they have.
static bool synced(int fd) {
    return fsync(fd) == 0 || errno == EINVAL;
}

static int sync_folder(const char *path) {
    char folder[sizeof((AtomicFile *)0)->path];
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (!slash) {
        strcpy(folder, ".");
    } else if (slash == folder) {
        strcpy(folder, "/");
    } else {
        *slash = '\0';
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES ? 0 : -1; // writable but not readable: cannot be synced
    bool ok = synced(fd);
    close(fd);
    return ok ? 0 : -1;
}

int file_commit(AtomicFile *f, Error *err) {
    // fflush first: its errno says why; ferror alone only remembers that some write failed.
    errno = 0;
    bool ok = fflush(f->file) == 0 && !ferror(f->file) && synced(fileno(f->file));
    int cause = errno;
    bool closed = fclose(f->file) == 0;
    f->file = NULL;
    if (ok && !closed) cause = errno;
    ok = ok && closed;
    if (ok && (rename(f->temporary, f->path) != 0 || sync_folder(f->path) != 0)) {
        cause = errno;
        ok = false;
    }
    if (ok) return 0;
    unlink(f->temporary);
    return error_set(err, STATUS_FAILED, "cannot write %s: %s", f->path,
                     cause ? strerror(cause) : "a write failed");
}

void file_abandon(AtomicFile *f) {
    if (!f->file) return;
    fclose(f->file);
    unlink(f->temporary);
    f->file = NULL;
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int file_make_folder(const char *path, Error *err) {
    char part[sizeof((AtomicFile *)0)->path];
    if (strlen(path) >= sizeof part) {
        return error_set(err, STATUS_USAGE, "%.60s...: the path is too long", path);
    }
    strcpy(part, path);
    size_t length = strlen(part);
    for (size_t i = 1; i <= length; i++) { // at the end of each component
        if (part[i] != '/' && part[i] != '\0') continue;
        char end = part[i];
        part[i] = '\0';
        // mkdir's errors on what exists vary (EEXIST, EROFS, EACCES): ask what is there instead.
        if (mkdir(part, 0777) != 0) {
            int cause = errno;
            if (!is_folder(part)) {
                return error_set(err, STATUS_USAGE, "cannot make the folder %s: %s", part,
                                 cause == EEXIST ? "a file has that name" : strerror(cause));
            }
        }
        part[i] = end;
    }
    return 0;
}
