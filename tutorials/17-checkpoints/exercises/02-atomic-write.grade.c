/* 02-atomic-write.grade.c: the file at the path before, while and after the content is written;
 * when writing fails; when the disk is full; when one of the calls fails. fflush, fsync, fclose and
 * rename are defined in this file, which logs their order and makes them fail: a program's own
 * functions take precedence over the C library's.
 */
#include "tutorials/17-checkpoints/exercises/02-atomic-write.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_17_02;

enum { LONG = 1000, LIMIT = 100, LONGEST = 199 };

static struct {
    int syncs, renames, syncs_before_rename;
    off_t synced;        // the file's bytes at its last fsync
    int flushes, closes; // failed calls
    char renamed_from[512];
} seen;
static bool fflush_fails, fsync_fails, fclose_fails, rename_fails;

int fflush(FILE *file) {
    seen.flushes += fflush_fails;
    errno = EIO;
    return fflush_fails ? EOF : fflush_unlocked(file);
}

int fclose(FILE *file) {
    union { // POSIX allows this copy; C forbids a cast between function and object pointers
        void *data;
        int (*function)(FILE *);
    } library = {.data = dlsym(RTLD_NEXT, "fclose")};
    int status = library.function(file);
    seen.closes += fclose_fails;
    errno = EIO;
    return fclose_fails ? EOF : status;
}

int fsync(int file) {
    struct stat now;
    seen.syncs++;
    seen.synced = fstat(file, &now) == 0 ? now.st_size : 0;
    errno = EIO;
    return fsync_fails ? -1 : (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to) {
    seen.renames++;
    seen.syncs_before_rename = seen.syncs;
    snprintf(seen.renamed_from, sizeof seen.renamed_from, "%s", from);
    errno = EACCES;
    return rename_fails ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

typedef struct Scene {
    bool old_file, fails, disk_is_full; // the case
    bool long_path;                     // as long as a path may be
    const char *left;                   // a file left in the folder, or NULL
    char folder[256], path[512];
    char during[16];   // the file at the path while the content was written
    char after[16];    // and at the end
    int status, error; // and errno, where it failed without a rename
    size_t files;      // in the folder at the end
    size_t open;       // files that were left open
} Scene;

// The first bytes of the file at the path; "" without a file.
static void look(const char *path, char *text, size_t size) {
    memset(text, 0, size);
    FILE *file = fopen(path, "rb");
    if (!file) return;
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
}

static int write_content(FILE *file, void *context) {
    Scene *s = context;
    static const char padding[LONG];
    fputs("new", file);
    if (s->disk_is_full) fwrite(padding, 1, LONG, file); // into the buffer: this does not fail yet
    look(s->path, s->during, sizeof s->during);
    return s->fails ? -1 : 0;
}

// Returns the number of files that this process has open.
static size_t count_open(void) {
    size_t count = 0;
    for (int file = 0; file < 256; file++) count += fcntl(file, F_GETFD) != -1;
    return count;
}

// Removes the folder's files, and returns their number.
static size_t empty_folder(const char *folder) {
    size_t count = 0;
    DIR *open = opendir(folder);
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        if (entry->d_name[0] == '.' && strlen(entry->d_name) < 3) continue;
        unlinkat(dirfd(open), entry->d_name, 0);
        count++;
    }
    if (open) closedir(open);
    rmdir(folder);
    return count;
}

static void put(const char *folder, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file) fputs(text, file);
    if (file) fclose(file);
}

// In the student's process, in the folder that it may write.
static void write_atomically(Grade *grade, Scene *scene) {
    char more[256] = ""; // in the folder's name
    Scene s = *scene;
    __typeof__(&atomic_write) student = STUDENT(grade, atomic_write);
    if (s.long_path)
        memset(more, 'x', LONGEST - strlen(grade_room(grade)) - strlen("/f-XXXXXX/checkpoint"));
    snprintf(s.folder, sizeof s.folder, "%s/%sf-XXXXXX", grade_room(grade), more);
    if (!mkdtemp(s.folder))
        grade_miss(grade, "There is no room for a file in %s.", grade_room(grade));
    snprintf(s.path, sizeof s.path, "%s/checkpoint", s.folder);
    if (s.old_file) put(s.folder, "checkpoint", "old");
    if (s.left) put(s.folder, s.left, "half of an older one");
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = LIMIT;
    signal(SIGXFSZ, SIG_IGN);
    if (s.disk_is_full) setrlimit(RLIMIT_FSIZE, &limit);
    size_t open_before = count_open();
    errno = 0;
    s.status = student(s.path, write_content, &s);
    s.error = s.status != 0 && seen.renames == 0 ? errno : 0;
    s.open = count_open() - open_before;
    setrlimit(RLIMIT_FSIZE, &before);
    look(s.path, s.after, sizeof s.after);
    s.files = empty_folder(s.folder);
    *scene = s;
}

static Scene play(Grade *grade, Scene s) {
    if (grade_plays(grade)) write_atomically(grade, &s);
    GRADE_OUT(grade, s);
    GRADE_OUT(grade, seen);
    return s;
}

static void writes(Grade *grade) {
    Scene s = play(grade, (Scene){0});
    GRADE_EXPECT(grade, s.error != EACCES,
                 "The temporary file lies in another folder: rename does not work from one file "
                 "system to another.");
    GRADE_EXPECT(grade, s.status == 0, "It returned %d, and nothing had failed.", s.status);
    GRADE_EXPECT(grade, strcmp(s.after, "new") == 0,
                 "What the content's function has written is not at the path afterwards.");
    GRADE_EXPECT(grade, s.files == 1, "A temporary file was left in the folder.");
    GRADE_EXPECT(grade, s.open == 0,
                 "The file was left open: a training that writes one each epoch runs out of them.");
}

// The temporary file of a program that was killed is still there.
static void was_killed(Grade *grade) {
    char left[sizeof seen.renamed_from];
    play(grade, (Scene){.old_file = true});
    const char *slash = strrchr(seen.renamed_from, '/');
    snprintf(left, sizeof left, "%s", slash ? slash + 1 : seen.renamed_from);
    Scene s = play(grade, (Scene){.old_file = true, .left = left});
    GRADE_EXPECT(grade, s.status == 0,
                 "A program that was killed has left its temporary file, and since then none is "
                 "written any more.");
    GRADE_EXPECT(grade, strcmp(s.after, "new") == 0,
                 "A program that was killed has left its temporary file, and its contents are in "
                 "the new file.");
}

static void replaces(Grade *grade) {
    Scene s = play(grade, (Scene){.old_file = true}), first = play(grade, (Scene){0});
    GRADE_EXPECT(grade,
                 strcmp(s.during, "old") == 0 && first.during[0] == '\0' &&
                     access(first.path, F_OK) != 0,
                 "The old file was gone while the new one was being written: a process killed now "
                 "leaves neither.");
    GRADE_EXPECT(grade, s.status == 0 && strcmp(s.after, "new") == 0,
                 "The old file was not replaced by the new one.");
    GRADE_EXPECT(grade, seen.renames > 0, "The new file did not get its name by rename.");
    GRADE_EXPECT(grade, strncmp(seen.renamed_from, first.folder, strlen(first.folder)) == 0,
                 "The temporary file lies in another folder: rename does not work from one file "
                 "system to another.");
    GRADE_EXPECT(grade, s.files == 1, "A temporary file was left in the folder.");
    Scene longest = play(grade, (Scene){.old_file = true, .long_path = true});
    GRADE_EXPECT(grade, longest.status == 0 && strcmp(longest.after, "new") == 0,
                 "A path of %d characters, and nothing was written there: the memory for the "
                 "temporary file's name is too short.",
                 LONGEST);
    GRADE_EXPECT(grade,
                 strcmp(longest.during, "old") == 0 &&
                     strncmp(seen.renamed_from, longest.folder, strlen(longest.folder)) == 0,
                 "A path of %d characters: the temporary file's name was cut off, and is the path "
                 "itself or lies in another folder.",
                 LONGEST);
    was_killed(grade);
}

static void failure(Grade *grade) {
    Scene s = play(grade, (Scene){.old_file = true, .fails = true});
    GRADE_EXPECT(grade, strcmp(s.after, "old") == 0,
                 "Writing the content failed, and the half of it replaced the old file.");
    GRADE_EXPECT(grade, s.status == -1, "Writing the content failed, and it returned %d, not -1.",
                 s.status);
    GRADE_EXPECT(grade, s.files == 1,
                 "Writing the content failed, and the temporary file was left in the folder.");
    GRADE_EXPECT(grade, s.open == 0, "Writing the content failed, and the file was left open.");
}

// One of the calls fails, and nothing else.
static void check_call(Grade *grade, const char *name, bool *fails, const int *failed) {
    *fails = true;
    Scene s = play(grade, (Scene){.old_file = true});
    *fails = false;
    if (failed && *failed == 0) return; // the student's function does not use this call
    GRADE_EXPECT(grade, s.status == -1, "%s failed, and it returned %d, not -1.", name, s.status);
    GRADE_EXPECT(grade, strcmp(s.after, "old") == 0 && s.files == 1,
                 "%s failed, and the folder is not as it was: the temporary file goes, the old one "
                 "stays.",
                 name);
    GRADE_EXPECT(grade, s.open == 0, "%s failed, and the file was left open.", name);
}

static void calls(Grade *grade) {
    check_call(grade, "fsync", &fsync_fails, NULL);
    check_call(grade, "rename", &rename_fails, NULL);
    check_call(grade, "fclose", &fclose_fails, &seen.closes);
    check_call(grade, "fflush", &fflush_fails, &seen.flushes);
    Scene s = {0};
    int status = GRADE_CALL(grade, atomic_write, "/no-such-folder/checkpoint", write_content, &s);
    GRADE_EXPECT(grade, status == -1, "There is no such folder, and it returned %d, not -1.",
                 status);
}

static void full_disk(Grade *grade) {
    Scene s = play(grade, (Scene){.old_file = true, .disk_is_full = true});
    GRADE_EXPECT(
        grade, strcmp(s.after, "old") == 0 && s.status == -1,
        "The disk was full, and that went unnoticed: fflush and fclose say whether the buffer "
        "was written.");
    GRADE_EXPECT(grade, s.files == 1,
                 "The disk was full, and the temporary file was left in the folder.");
    GRADE_EXPECT(grade, s.open == 0, "The disk was full, and the file was left open.");
}

static void on_the_disk(Grade *grade) {
    play(grade, (Scene){.old_file = true});
    GRADE_EXPECT(grade, seen.syncs_before_rename > 0,
                 "There is no fsync before the rename: after a power failure, the name may be "
                 "there and the content not.");
    GRADE_EXPECT(grade, seen.synced > 0,
                 "fsync came when the file was still empty: the content was in the program's own "
                 "buffer, so fflush comes first.");
}

const Grader grader_17_02 = {"17-checkpoints/02-atomic-write",
                             {{"a new file", 2, NULL, writes},
                              {"the old one or the new one", 3, "a new file", replaces},
                              {"writing fails", 1, "the old one or the new one", failure},
                              {"the disk is full", 2, "writing fails", full_disk},
                              {"a call fails", 1, "writing fails", calls},
                              {"on the disk", 1, "the old one or the new one", on_the_disk}}};
