/* test_file_calls.c: atomic files whose system calls fail one by one (common/base/file.c): the
 * error, and the folder's contents afterwards.
 */
#include "tests/rigs/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "tests/rigs/temp_folder.h"

typedef enum Call { NONE, OPEN_FOLDER, FSYNC, FLOCK, FSTAT } Call;

static Call failing;
static int with; // errno of the failing calls

static bool fails(Call call) {
    if (call != failing) return false;
    errno = with;
    return true;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    assert_int_equal(flags & O_CLOEXEC, O_CLOEXEC);
    return strcmp(path, ".") == 0 && fails(OPEN_FOLDER) ? -1 : __real_open(path, flags, mode);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    return fails(FSYNC) ? -1 : __real_fsync(fd);
}

// A successful flock may change errno.
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    const int status = fails(FLOCK) ? -1 : __real_flock(fd, operation);
    if (status == 0) errno = EWOULDBLOCK;
    return status;
}

int __real_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info) {
    return fails(FSTAT) ? -1 : __real_fstat(fd, info);
}

// A successful fclose may change errno.
int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file) {
    const int status = __real_fclose(file);
    errno = ENOTBLK;
    return status;
}

static int begin(void **state) {
    failing = NONE;
    if (temp_folder_make(state) != 0 || chdir(*state) != 0) return -1;
    write_whole("data", "old", 3);
    return 0;
}

// Writes "new" to data while `call` fails with errno `cause`; expects `message` ("": success).
static void writes(Call call, int cause, const char *message) {
    AtomicFile file;
    Error err = {0};
    failing = call;
    with = cause;
    int status = file_begin(&file, "data", &err);
    if (status == 0) {
        fputs("new", file.file);
        status = file_commit(&file, &err);
    }
    failing = NONE;
    assert_string_equal(err.message, message);
    assert_int_equal(status, *message ? -1 : 0);
    assert_int_equal(count_files(".", ""), 1);
}

static void a_file_that_cannot_be_synced(void **state) {
    (void)state;
    writes(FSYNC, EIO, "cannot write data: Input/output error");
    check_file("data", "old");
    writes(FSYNC, EINVAL, ""); // the file system has no fsync
    check_file("data", "new");
}

// If the folder cannot be synced, the file already has its name; only its durability is unknown.
static void a_folder_that_cannot_be_synced(void **state) {
    (void)state;
    writes(OPEN_FOLDER, ENFILE, "cannot write data: Too many open files in system");
    writes(OPEN_FOLDER, EACCES, ""); // the folder is writable but not readable
    check_file("data", "new");
}

static void a_write_failed_before(void **state) {
    (void)state;
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, "data", &err), 0);
    assert_int_equal(fgetc(file.file), EOF); // sets the stream's error flag
    assert_true(ferror(file.file));
    assert_int_equal(file_commit(&file, &err), -1);
    assert_string_equal(err.message, "cannot write data: a write failed");
    assert_int_equal(count_files(".", ""), 1);
    check_file("data", "old");
}

static void a_folder_takes_the_name(void **state) {
    (void)state;
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, "data", &err), 0);
    assert_int_equal(unlink("data") | mkdir("data", 0700), 0);
    assert_int_equal(file_commit(&file, &err), -1);
    assert_string_equal(err.message, "cannot write data: Is a directory");
    assert_int_equal(count_files(".", ""), 1);
}

// Each new temporary file is locked by a sweeping process before this process locks it: it must try
// the next name.
static void every_temporary_is_locked(void **state) {
    (void)state;
    AtomicFile file;
    Error err = {0};
    char first[FILE_PATH_MAX];
    failing = FLOCK;
    with = EWOULDBLOCK;
    assert_int_equal(file_begin(&file, "data", &err), -1);
    assert_string_equal(err.message, "cannot write data: File exists");
    failing = NONE;
    empty_folder(".");
    assert_int_equal(file_begin(&file, "data", &err), 0);
    snprintf(first, sizeof first, "data.%ld.0.tmp", (long)getpid());
    assert_string_equal(file.temporary, first);
    file_abandon(&file);
}

static void no_name_is_no_file(void **state) {
    (void)state;
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, "", &err), -1);
    assert_string_equal(err.message, "cannot write '': a file needs a name");
    assert_int_equal(count_files(".", ""), 1);
}

static void a_file_that_cannot_be_looked_at(void **state) {
    (void)state;
    Error err = {0};
    failing = FSTAT;
    with = EIO;
    assert_int_equal(file_open("data", NULL, &err), -1);
    failing = NONE;
    assert_string_equal(err.message, "data: Input/output error");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, begin, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_that_cannot_be_synced),    IN_FOLDER(a_folder_that_cannot_be_synced),
        IN_FOLDER(a_write_failed_before),           IN_FOLDER(a_folder_takes_the_name),
        IN_FOLDER(every_temporary_is_locked),       IN_FOLDER(no_name_is_no_file),
        IN_FOLDER(a_file_that_cannot_be_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
