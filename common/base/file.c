/* file.c: files that are either whole or not there.
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
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef char Path[sizeof((AtomicFile *)0)->path];

// Returns false if a sweep of another process removed the new file: without a lock it looked like
// one that a dead writer had left.
static bool lock_temporary(int fd) {
    struct stat info;
    // Some file systems know no locks; nobody can sweep there, either.
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

// Opens a new file path.PID.N.tmp; PID and N keep processes and threads that write the same path
// apart.
static int open_temporary(AtomicFile *f) {
    for (int n = 0; n < 100; n++) {
        snprintf(f->temporary, sizeof f->temporary, "%s.%ld.%d.tmp", f->path, (long)getpid(), n);
        int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0 || lock_temporary(fd)) return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

int file_begin(AtomicFile *f, const char *path, Error *err) {
    f->file = NULL;
    if (!*path) return error_set(err, STATUS_USAGE, "cannot write '': a file needs a name");
    if (strlen(path) >= sizeof f->path)
        return error_set(err, STATUS_USAGE, "%.60s...: the path is too long", path);
    strcpy(f->path, path);
    struct stat info;
    // rename would replace a device (/dev/null!) as readily as a file.
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return error_set(err, STATUS_USAGE, "cannot write %s: it is not a regular file", path);
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

// Some file systems cannot fsync (EINVAL). There nothing more can be done.
static bool synced(int fd) {
    return fsync(fd) == 0 || errno == EINVAL;
}

static void folder_of(const char *path, Path folder) {
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else if (slash == folder)
        strcpy(folder, "/");
    else
        *slash = '\0';
}

static int sync_folder(const char *path) {
    Path folder;
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES ? 0 : -1; // writable but not readable: cannot be synced
    bool ok = synced(fd);
    close(fd);
    return ok ? 0 : -1;
}

int file_commit(AtomicFile *f, Error *err) {
    int lock = fcntl(fileno(f->file), F_DUPFD_CLOEXEC, 0); // held until the file has its name
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
    if (lock >= 0) close(lock);
    if (ok) {
        file_sweep(f->path);
        return 0;
    }
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

// Is it "NAME.PID.N.tmp"?
static bool is_temporary_of(const char *name, const char *entry) {
    size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0) return false;
    const char *at = entry + length;
    for (int part = 0; part < 2; part++) {
        size_t digits = *at == '.' ? strspn(at + 1, "0123456789") : 0;
        if (digits == 0) return false;
        at += 1 + digits;
    }
    return strcmp(at, ".tmp") == 0;
}

void file_sweep(const char *path) {
    Path folder;
    if (strlen(path) >= sizeof folder) return;
    folder_of(path, folder);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    DIR *entries = opendir(folder);
    if (!entries) return; // what cannot be listed stays as it is
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (!is_temporary_of(name, entry->d_name)) continue;
        int fd = openat(dirfd(entries), entry->d_name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(entries), entry->d_name, 0);
        close(fd);
    }
    closedir(entries);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int file_make_folder(const char *path, Error *err) {
    if (!*path) return error_set(err, STATUS_USAGE, "cannot make '': a folder needs a name");
    Path part;
    if (strlen(path) >= sizeof part)
        return error_set(err, STATUS_USAGE, "%.60s...: the path is too long", path);
    strcpy(part, path);
    size_t length = strlen(part);
    for (size_t i = 1; i <= length; i++) { // at the end of each component
        if (part[i] != '/' && part[i] != '\0') continue;
        char end = part[i];
        part[i] = '\0';
        // mkdir's errors on what exists vary (EEXIST, EROFS, EACCES): ask what is there instead.
        if (mkdir(part, 0777) != 0) {
            int cause = errno;
            if (!is_folder(part))
                return error_set(err, STATUS_USAGE, "cannot make the folder %s: %s", part,
                                 cause == EEXIST ? "a file has that name" : strerror(cause));
        }
        part[i] = end;
    }
    return 0;
}
