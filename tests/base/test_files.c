/* test_files.c: targets that are symbolic links, temporary files of dead and live writers, reading,
 * folders, locks, shared objects. flock, the clock and sleeping are simulated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/lock.h"
#include "common/base/machine.h"
#include "common/base/shared_object.h"
#include "tests/rigs/files.h"
#include "tests/rigs/temp_folder.h"

static int flock_cause;           // errno of the next calls of flock; 0: they succeed
static const char *flock_unlinks; // removed before the next call of flock
static int flocks;                // calls of flock
static uint64_t now_ns, tick;     // the clock; each reading adds `tick`, each nap its length
static int naps, holder, dies_at; // holder's descriptor is closed after nap `dies_at`

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if (flock_unlinks) unlink(flock_unlinks);
    flock_unlinks = NULL;
    flocks++;
    if (flock_cause == 0) return __real_flock(fd, operation);
    errno = flock_cause;
    return -1;
}

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns(void) {
    now_ns += tick;
    errno = ENOTBLK; // any call may change errno
    return now_ns;
}

uint64_t __wrap_clock_ns_after(double seconds);
uint64_t __wrap_clock_ns_after(double seconds) {
    return now_ns + (uint64_t)(seconds * 1e9);
}

int __wrap_nanosleep(const struct timespec *duration, struct timespec *left);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *left) {
    now_ns += (uint64_t)duration->tv_nsec;
    assert_null(left);
    if (++naps == dies_at) close(holder);
    return 0;
}

static void put(const char *path, const char *text) {
    write_whole(path, text, strlen(text));
}

static void assert_error(Error *err, int status, const char *wanted) {
    assert_string_equal(err->message, wanted);
    assert_int_equal(err->status, status);
    *err = (Error){0};
}

static void in_folder(void **state) {
    assert_int_equal(chdir(*state), 0);
}

// ---- writing ------------------------------------------------------------------------------------

static int write_file(const char *path, const char *text, Error *err) {
    AtomicFile file;
    if (file_begin(&file, path, err) != 0) return -1;
    fputs(text, file.file);
    const int failed = file_commit(&file, err);
    file_abandon(&file); // no file is open
    return failed;
}

static void links_are_followed(void **state) {
    char target[FILE_PATH_MAX], absolute[FILE_PATH_MAX], name[16], before[16] = "end";
    Error err = {0};
    in_folder(state);
    snprintf(absolute, sizeof absolute, "%s/sub/there", (const char *)*state);
    assert_int_equal(mkdir("sub", 0700) | symlink("sub/here", "link"), 0);
    assert_int_equal(symlink("there", "sub/here") | symlink(absolute, "sub/absolute"), 0);
    assert_int_equal(file_follow_links("link", target, &err), 0);
    assert_string_equal(target, "sub/there");
    assert_int_equal(file_follow_links("sub/absolute", target, &err), 0);
    assert_string_equal(target, absolute);
    assert_int_equal(write_file("link", "text", &err), 0);
    check_file("sub/there", "text");
    for (int i = 1; i <= 41; i++) { // the kernel follows 40 links
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(symlink(before, name), 0);
        strcpy(before, name);
    }
    assert_int_equal(write_file("40", "far", &err), 0);
    check_file("end", "far");
    assert_int_equal(write_file("41", "farther", &err), -1);
    assert_error(&err, STATUS_USAGE, "cannot write 41: Too many levels of symbolic links");
}

#define XS "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void long_paths_are_refused(void **state) {
    char path[FILE_PATH_MAX + 1], target[FILE_PATH_MAX], wanted[100];
    Error err = {0};
    snprintf(wanted, sizeof wanted, "%s...: the path is too long", XS);
    memset(path, 'x', FILE_PATH_MAX);
    path[FILE_PATH_MAX] = '\0';
    in_folder(state);
    assert_int_equal(file_follow_links(path, target, &err), -1);
    assert_error(&err, STATUS_USAGE, wanted);
    assert_int_equal(file_make_folder(path, &err), -1);
    assert_error(&err, STATUS_USAGE, wanted);
    assert_int_equal(file_open(path, NULL, &err), -1);
    assert_error(&err, STATUS_USAGE, wanted);
    file_sweep(path);             // must not remove it
    char dots[FILE_PATH_MAX + 1]; // "./././.../data"
    for (int i = 0; i < FILE_PATH_MAX; i++) dots[i] = i % 2 ? '/' : '.';
    strcpy(dots + FILE_PATH_MAX - 4, "data");
    put("data.1.2.tmp", "");
    file_sweep(dots);
    assert_int_equal(access("data.1.2.tmp", F_OK), 0);
    path[FILE_PATH_MAX - 1] = '\0';
    assert_int_equal(file_follow_links(path, target, &err), 0);
    assert_string_equal(target, path);
    // A link of at most 4095 bytes in folder "sub/".
    memset(path, 'x', FILE_PATH_MAX);
    for (int i = 100; i < FILE_PATH_MAX; i += 100) path[i] = '/';
    assert_int_equal(mkdir("sub", 0700), 0);
    path[FILE_PATH_MAX - 1 - 4] = '\0';
    assert_int_equal(symlink(path, "sub/fits"), 0);
    assert_int_equal(file_follow_links("sub/fits", target, &err), 0);
    path[FILE_PATH_MAX - 1 - 4] = 'x';
    path[FILE_PATH_MAX - 4] = '\0';
    assert_int_equal(symlink(path, "sub/long"), 0);
    assert_int_equal(file_follow_links("sub/long", target, &err), -1);
    assert_error(&err, STATUS_USAGE, "sub/long...: the path is too long");
}

// A process's temporary files are numbered up to 99.
static void temporary_files_have_numbers(void **state) {
    const mode_t mask = umask(0);
    char name[64];
    struct stat info;
    AtomicFile file;
    Error err = {0};
    in_folder(state);
    for (int n = 0; n < 99; n++) {
        snprintf(name, sizeof name, "data.%ld.%d.tmp", (long)getpid(), n);
        put(name, "another thread's");
    }
    assert_int_equal(file_begin(&file, "data", &err), 0);
    assert_non_null(strstr(file.temporary, ".99.tmp"));
    assert_int_equal(stat(file.temporary, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0666);
    AtomicFile other;
    assert_int_equal(file_begin(&other, "data", &err), -1);
    assert_error(&err, STATUS_USAGE, "cannot write data: File exists");
    assert_null(other.file);
    file_abandon(&other);
    file_abandon(&file);
    umask(mask);
}

// Another process considers the new file stale and removes it before it is locked.
static void a_removed_temporary_is_made_again(void **state) {
    char name[64];
    Error err = {0};
    AtomicFile file;
    in_folder(state);
    snprintf(name, sizeof name, "data.%ld.0.tmp", (long)getpid());
    flock_unlinks = name;
    assert_int_equal(file_begin(&file, "data", &err), 0);
    assert_non_null(strstr(file.temporary, ".1.tmp"));
    file_abandon(&file);
    flock_cause = ENOLCK; // a file system without locks
    assert_int_equal(write_file("data", "new", &err), 0);
    flock_cause = 0;
    check_file("data", "new");
}

static void dead_writers_files_are_swept(void **state) {
    static const char *const removed[] = {"data.1.2.tmp", "data.123456.99.tmp"};
    static const char *const kept[] = {"data.1.2.tmpx", "data.1.tmp",   "data..2.tmp",
                                       "data.1.2.tm",   "dat.1.2.tmp",  "data.a.2.tmp",
                                       "data2.1.2.tmp", "date.1.2.tmp", "data2",
                                       "sub.1.2.tmp",   "data.1.3.tmp"};
    const size_t many = sizeof kept / sizeof *kept;
    Error err = {0};
    in_folder(state);
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) put(removed[i], "");
    for (size_t i = 0; i + 2 < many; i++) put(kept[i], "");
    assert_int_equal(mkdir("sub.1.2.tmp", 0700) | symlink("data", "data.1.3.tmp"), 0);
    AtomicFile living;
    assert_int_equal(file_begin(&living, "data", &err), 0);
    assert_int_equal(write_file("data", "new", &err), 0);
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        assert_int_not_equal(access(removed[i], F_OK), 0);
    for (size_t i = 0; i < many; i++) assert_int_equal(access(kept[i], F_OK), 0);
    assert_int_equal(access(living.temporary, F_OK), 0);
    file_abandon(&living);
    char *path = temp_folder_path(state, "data");
    put("data.1.2.tmp", "");
    file_sweep(path);
    assert_int_not_equal(access("data.1.2.tmp", F_OK), 0);
    free(path);
    file_sweep("none/data");
}

static void descriptor_0_is_like_any_other(void **state) {
    Error err = {0};
    AtomicFile file;
    const int kept = dup(STDIN_FILENO);
    in_folder(state);
    put("data.1.2.tmp", "");
    close(STDIN_FILENO);
    assert_int_equal(write_file("data", "new", &err), 0);
    assert_int_not_equal(access("data.1.2.tmp", F_OK), 0);
    const int fd = file_open("data", NULL, &err);
    assert_int_equal(fd, STDIN_FILENO);
    close(fd);
    FILE *stream = file_open_stream("data", NULL, &err);
    assert_non_null(stream);
    fclose(stream);
    assert_int_equal(file_open(".", NULL, NULL), -1);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    errno = EEXIST; // left by an earlier call
    assert_int_equal(file_begin(&file, "data", &err), 0);
    const int other = open(file.temporary, O_WRONLY | O_CLOEXEC);
    assert_true(flock(other, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK); // locked
    close(other);
    file_abandon(&file);
    dup2(kept, STDIN_FILENO);
    assert_int_equal(file_begin(&file, "data", &err), 0);
    fputs("text", file.file);
    close(STDIN_FILENO); // the lock's descriptor will be 0
    assert_int_equal(file_commit(&file, &err), 0);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    FileLock *lock = lock_take("lock", "data", &err);
    assert_non_null(lock);
    lock_release(lock);
    assert_null(lock_take("data", "data", &err)); // not a lock file
    assert_error(&err, STATUS_USAGE, "data: cannot make data: File exists");
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    dup2(kept, STDIN_FILENO);
    close(kept);
}

static void the_cause_names_a_limit(void **state) {
    (void)state;
    char text[FILE_CAUSE_ROOM];
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    assert_string_equal(file_cause(ENOSPC, text), "No space left on device");
    if (before.rlim_cur == RLIM_INFINITY)
        assert_string_equal(file_cause(EFBIG, text), "File too large");
    small.rlim_cur = 3 << 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_string_equal(
        file_cause(EFBIG, text),
        "File too large: files are limited to 3 KiB (ulimit -f) -- raise the limit");
    assert_string_equal(file_cause(ENOSPC, text), "No space left on device");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

// ---- reading ------------------------------------------------------------------------------------

static void only_regular_files_are_read(void **state) {
    static const struct {
        const char *name, *message;
    } cases[] = {
        {"none", "none: No such file or directory"},
        {"", "'': No such file or directory"},
        {"folder", "folder: is a folder, not a regular file"},
        {"fifo", "fifo: is a FIFO, not a regular file"},
        {"socket", "socket: is a socket, not a regular file"},
        {"/dev/null", "/dev/null: is a device, not a regular file"},
        {"data/x", "data/x: Not a directory"},
    };
    Error err = {0};
    size_t bytes = 0;
    in_folder(state);
    put("data", "seven b");
    assert_int_equal(mkdir("folder", 0700) | mkfifo("fifo", 0600), 0);
    const int end = socket(AF_UNIX, SOCK_STREAM, 0);
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    assert_int_equal(bind(end, (const struct sockaddr *)&address, sizeof address), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(file_open(cases[i].name, &bytes, &err), -1);
        assert_error(&err, STATUS_USAGE, cases[i].message);
        assert_null(file_open_stream(cases[i].name, &bytes, &err));
        assert_error(&err, STATUS_USAGE, cases[i].message);
    }
    close(end);
    const int fd = file_open("data", &bytes, &err);
    assert_true(fd >= 0 && bytes == 7);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    assert_true(file_exists("%s%s", "da", "ta") && !file_exists("%s", "none"));
}

static void folders_are_made(void **state) {
    struct stat info;
    Error err = {0};
    const mode_t mask = umask(0);
    in_folder(state);
    assert_int_equal(file_make_folder("", &err), -1);
    assert_error(&err, STATUS_USAGE, "cannot make '': a folder needs a name");
    assert_int_equal(file_make_folder("a", &err) | file_make_folder("b/c", &err), 0);
    umask(mask);
    assert_int_equal(stat("b/c", &info), 0);
    assert_int_equal(info.st_mode, S_IFDIR | 0777);
    assert_int_equal(file_make_folder("/proc/none", &err), -1);
    assert_error(&err, STATUS_USAGE,
                 "cannot make the folder /proc/none: No such file or directory");
}

// ---- locks --------------------------------------------------------------------------------------

static const char LOCK[] = "data.lock";

static void take_away(void **state, const char *text, const char *message) {
    Error err = {0};
    in_folder(state);
    if (text) put(LOCK, text);
    assert_null(lock_take(LOCK, "data", &err));
    assert_error(&err, STATUS_USAGE, message);
    if (text) check_file(LOCK, text);
}

static void a_lock_names_its_holder(void **state) {
    char wanted[500], host[256], command[82] = "";
    Error err = {0};
    struct stat info;
    const mode_t mask = umask(0);
    in_folder(state);
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t length = fread(command, 1, 80, file);
    fclose(file);
    for (size_t i = 0; i + 1 < length; i++)
        if (command[i] == '\0') command[i] = ' ';
    machine_name(host, sizeof host);
    put(LOCK,
        "process 7 on a host that is no more, with a very long command of many words indeed\n");
    for (int round = 0; round < 2; round++) { // a dead process's lock file, then none
        FileLock *lock = lock_take(LOCK, "data", &err);
        assert_non_null(lock);
        assert_true(lock_is_held(lock));
        snprintf(wanted, sizeof wanted, "process %ld on %s: %s\n", (long)getpid(), host, command);
        check_file(LOCK, wanted);
        assert_int_equal(stat(LOCK, &info), 0);
        if (round == 1) assert_int_equal(info.st_mode & 07777, 0666);
        tick = 2000000000; // longer than the second that lock_take waits
        snprintf(
            wanted, sizeof wanted,
            "data: in use by process %ld on %s: %s; wait until it ends, or choose another name",
            (long)getpid(), host, command);
        take_away(state, NULL, wanted);
        tick = 0;
        lock_release(lock);
        assert_int_not_equal(access(LOCK, F_OK), 0);
    }
    lock_release(NULL);
    umask(mask);
}

static void a_holder_is_told_as_a_line(void **state) {
    static const struct {
        const char *text, *told;
        size_t length;
    } cases[] = {
        {"process 1", "process 1", 9},
        {"process 1 \n\n", "process 1 ", 12},
        {"process 1\0\033b\n\0", "process 1 ?b", 13},
        {"\001process 1", "?process 1", 10},
        {"\n", "another process", 1},
        {"", "another process", 0},
    };
    Error err = {0};
    in_folder(state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[200];
        holder = open(LOCK, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(write(holder, cases[i].text, cases[i].length) == (ssize_t)cases[i].length);
        assert_int_equal(flock(holder, LOCK_EX), 0);
        tick = 2000000000;
        assert_null(lock_take(LOCK, "data", &err));
        tick = 0;
        snprintf(wanted, sizeof wanted,
                 "data: in use by %s; wait until it ends, or choose another name", cases[i].told);
        assert_error(&err, STATUS_USAGE, wanted);
        close(holder);
    }
}

// Leaves no zeros in the stack for what an unread file's text would be.
__attribute__((noinline)) static void fill_stack(void) {
    volatile char used[8192];
    for (size_t i = 0; i < sizeof used; i++) used[i] = 'x';
}

// A lock counts as held after a second of naps; the holder's text is cut to the message's size.
static void a_held_lock_is_waited_for(void **state) {
    char text[600], wanted[700];
    Error err = {0};
    in_folder(state);
    memset(text, 'x', sizeof text);
    write_whole(LOCK, text, sizeof text);
    holder = open(LOCK, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(holder, LOCK_EX), 0);
    const uint64_t before = now_ns;
    naps = flocks = 0;
    assert_null(lock_take(LOCK, "data", &err));
    assert_int_equal(now_ns - before, 1000000000);
    assert_int_equal(naps, 50);
    assert_int_equal(flocks, 51);
    snprintf(wanted, sizeof wanted,
             "data: in use by %.511s; wait until it ends, or choose another name", text);
    assert_error(&err, STATUS_USAGE, wanted);
    flock_unlinks = LOCK; // the holder ends during the last attempt
    flock_cause = EWOULDBLOCK;
    tick = 2000000000;
    fill_stack();
    assert_null(lock_take(LOCK, "data", &err));
    flock_cause = 0;
    tick = 0;
    assert_error(&err, STATUS_USAGE,
                 "data: in use by another process; wait until it ends, or choose another name");
    close(holder);
}

static void others_files_are_no_locks(void **state) {
    take_away(state, "mine", "data: cannot make data.lock: File exists");
    take_away(state, "process", "data: cannot make data.lock: File exists");
    take_away(state, "processed meat", "data: cannot make data.lock: File exists");
    assert_int_equal(unlink(LOCK) | symlink("elsewhere", LOCK), 0);
    take_away(state, NULL, "data: cannot make data.lock: Too many levels of symbolic links");
    assert_int_equal(unlink(LOCK) | mkfifo(LOCK, 0600), 0);
    take_away(state, NULL, "data: cannot make data.lock: File exists");
    assert_int_equal(unlink(LOCK) | mkdir(LOCK, 0700), 0);
    take_away(state, NULL, "data: cannot make data.lock: Is a directory");
    assert_int_equal(rmdir(LOCK), 0);
    flock_cause = EBADF;
    take_away(state, NULL, "data: cannot make data.lock: Bad file descriptor");
    flock_cause = 0;
}

// On a file system without locks lock_take succeeds without a lock and excludes no process.
static void without_locks_none_is_held(void **state) {
    static const int causes[] = {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL};
    Error err = {0};
    in_folder(state);
    for (int i = 0; i < 4; i++) {
        flock_cause = causes[i];
        FileLock *first = lock_take(LOCK, "data", &err), *second = lock_take(LOCK, "data", &err);
        flock_cause = 0;
        assert_true(first && second && !lock_is_held(first) && !lock_is_held(second));
        lock_release(second);
        assert_int_equal(access(LOCK, F_OK), 0); // not removed: may belong to another process
        lock_release(first);
    }
}

static void a_lock_without_a_name_is_none(void **state) {
    Error err = {0};
    in_folder(state);
    flock_unlinks = LOCK; // the holder ends between open and flock
    FileLock *lock = lock_take(LOCK, "data", &err);
    assert_non_null(lock);
    assert_int_equal(access(LOCK, F_OK), 0);
    assert_int_equal(unlink(LOCK), 0);
    put(LOCK, "another's");
    lock_release(lock);
    check_file(LOCK, "another's");
}

// A dying process holds its lock for a moment longer.
static void a_dying_holder_is_waited_for(void **state) {
    Error err = {0};
    in_folder(state);
    holder = open(LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(holder, LOCK_EX), 0);
    naps = 0;
    dies_at = 49;
    FileLock *lock = lock_take(LOCK, "data", &err);
    dies_at = 0;
    assert_string_equal(err.message, "");
    assert_int_equal(naps, 49);
    lock_release(lock);
}

// ---- shared objects -----------------------------------------------------------------------------

static void symbols_are_found(void **state) {
    (void)state;
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], small[FILE_PATH_MAX];
    Error err = {0};
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    assert_true(shared_object_own_folder(folder, sizeof folder));
    assert_string_equal(folder, path);
    assert_true(shared_object_own_folder(small, strlen(path) + 1));
    assert_false(shared_object_own_folder(small, strlen(path)));
    assert_non_null(shared_object_find("libm.so.6", "fabs", &err));
    assert_null(shared_object_find("libm.so.6", "no_such", &err));
    assert_error(&err, STATUS_FAILED, "libm.so.6 has no no_such: is it of another build?");
    assert_null(shared_object_find("no_such.so", "fabs", &err));
    assert_non_null(strstr(err.message, "no_such.so"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(links_are_followed),
        IN_FOLDER(long_paths_are_refused),
        IN_FOLDER(temporary_files_have_numbers),
        IN_FOLDER(a_removed_temporary_is_made_again),
        IN_FOLDER(dead_writers_files_are_swept),
        IN_FOLDER(descriptor_0_is_like_any_other),
        cmocka_unit_test(the_cause_names_a_limit),
        IN_FOLDER(only_regular_files_are_read),
        IN_FOLDER(folders_are_made),
        IN_FOLDER(a_lock_names_its_holder),
        IN_FOLDER(a_holder_is_told_as_a_line),
        IN_FOLDER(a_held_lock_is_waited_for),
        IN_FOLDER(others_files_are_no_locks),
        IN_FOLDER(without_locks_none_is_held),
        IN_FOLDER(a_lock_without_a_name_is_none),
        IN_FOLDER(a_dying_holder_is_waited_for),
        cmocka_unit_test(symbols_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
