/* test_find_program.c: the file that a program's name selects (ddp/launch/find_program.c): in PATH,
 * by a path, in ddprun's folder, which is the test's folder here.
 */
#include "tests/rigs/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ddp/launch/launcher.h"
#include "tests/rigs/temp_folder.h"

static const char *me; // target of /proc/self/exe; NULL: unknown

ssize_t __wrap_readlink(const char *path, char *target, size_t room);
ssize_t __wrap_readlink(const char *path, char *target, size_t room) {
    assert_string_equal(path, "/proc/self/exe");
    assert_int_equal(room, PATH_MAX - 1);
    if (!me) return -1;
    memset(target, '/', room); // not terminated by a NUL
    memcpy(target, me, strlen(me));
    return (ssize_t)strlen(me);
}

static void make_program(const char *path, mode_t mode) {
    write_whole(path, "#!/bin/sh\n", 10);
    assert_int_equal(chmod(path, mode), 0);
}

// Makes a folder with ddprun, which is also the current folder, and two folders for PATH.
static int make_programs(void **state) {
    if (temp_folder_make(state) != 0 || chdir(*state) != 0) return -1;
    assert_int_equal(mkdir("first", 0700) | mkdir("second", 0700) | mkdir("bin", 0700), 0);
    assert_int_equal(mkdir("first/tool", 0700) | mkdir("bin/train_mp", 0700), 0);
    make_program("first/plain", 0600);
    make_program("second/tool", 0700);
    make_program("second/sh", 0700);
    make_program("second/s", 0700);
    make_program("here", 0700);
    make_program("bin/ddprun", 0700);
    make_program("bin/train_ddp", 0700);
    make_program("bin/train_fsdp", 0700);
    make_program("bin/tool", 0700);
    make_program("bin/dp_notes", 0600);
    me = temp_folder_path(state, "bin/ddprun");
    return 0;
}

static int remove_programs(void **state) {
    free((char *)me);
    return temp_folder_remove(state);
}

// "%s" in a path or message stands for the test's folder.
typedef struct Search {
    const char *folders, *name; // the value of PATH, the program
    const char *path;           // the found file; NULL: any
    const char *message;        // the error; NULL: none
} Search;

static void search(const char *folder, const Search *s) {
    char path[PATH_MAX] = "", wanted[PATH_MAX + 100], folders[3 * PATH_MAX];
    Error err = {0};
    snprintf(folders, sizeof folders, s->folders ? s->folders : "", folder, folder);
    if (s->folders)
        setenv("PATH", folders, 1);
    else
        unsetenv("PATH");
    const int status = launcher_find_program(s->name, path, &err);
    if (!s->message) {
        CHECK_OK(status == 0, err);
        snprintf(wanted, sizeof wanted, s->path ? s->path : "", folder);
        if (s->path) assert_string_equal(path, wanted);
    } else {
        assert_int_equal(status, -1);
        assert_string_equal(err.message, s->message);
        assert_int_equal(err.status, STATUS_USAGE);
    }
}

#define NONE(name) "cannot run '" name "': there is no such program in PATH or beside ddprun"

static void where_a_program_is(void **state) {
    static const Search searches[] = {
        {"/nowhere:%s/first:%s/second", "tool", "%s/second/tool", NULL},
        {"%s/second:%s/first", "tool", "%s/second/tool", NULL},
        {"%s/first", "tool", "%s/bin/tool", NULL}, // in ddprun's folder
        {NULL, "train_ddp", "%s/bin/train_ddp", NULL},
        {NULL, "sh", "/bin/sh", NULL}, // execvp's default without PATH
        {"", "here", "here", NULL},    // an empty entry is the current folder
        {"/nowhere:", "here", "here", NULL},
        {":/nowhere", "here", "here", NULL},
        {"/nowhere::%s/second", "here", "here", NULL},
        {"/nowhere", "here", NULL, NONE("here") "; to run the one in this folder write ./here"},
        {"%s/first", "plain", NULL, NONE("plain")},
        {"%s/first:", "", NULL, NONE("")},
        {"%s/first", "trian_ddp", NULL, NONE("trian_ddp") "; did you mean train_ddp?"},
        {"%s/first", "train_fsd", NULL, NONE("train_fsd") "; did you mean train_fsdp?"},
        {"%s/first", "train_mpp", NULL, NONE("train_mpp") "; did you mean train_ddp?"},
        {"%s/first", "train_f", NULL, NONE("train_f") "; did you mean train_ddp?"}, // distance 3
        {"%s/first", "dp_note", NULL, NONE("dp_note")}, // not executable
        {"%s/first", "tools/tool", NULL, "cannot run tools/tool: No such file or directory"},
        {"%s/first", "./here", "./here", NULL},
        {"%s/first", "./first", NULL, "cannot run ./first: is a folder"},
        {"%s/first", "first/plain", NULL, "cannot run first/plain: is not executable"},
        {"%s/first", "/dev/null", NULL, "cannot run /dev/null: is not executable"},
    };
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) search(*state, &searches[i]);
}

// Without /proc only PATH is searched.
static void ddprun_does_not_know_its_file(void **state) {
    char *kept = (char *)me;
    me = NULL;
    search(*state, &(Search){"%s/second", "tool", "%s/second/tool", NULL});
    search(*state, &(Search){"%s/first", "train_dpd", NULL, NONE("train_dpd")});
    me = "";
    search(*state, &(Search){"%s/first", "train_dpd", NULL, NONE("train_dpd")});
    me = kept;
}

// A long path of ddprun's folder leaves just enough room for the name, or too little: names are not
// cut.
static void ddprun_is_far_down(void **state) {
    char far[PATH_MAX], *kept = (char *)me;
    make_program("bin/too", 0700);
    for (size_t room = 4; room <= 5; room++) { // "tool" needs 5 with its NUL
        memset(far, '/', sizeof far);
        memcpy(far, kept, strlen(kept) - strlen("ddprun"));
        strcpy(far + PATH_MAX - room, "d");
        me = far;
        search(*state, room == 5 ? &(Search){"%s/first", "tool", NULL, NULL}
                                 : &(Search){"%s/first", "tool", NULL, NONE("tool")});
    }
    me = kept;
}

// A name that is too long to be appended to ddprun's folder.
static void a_long_name(void **state) {
    (void)state;
    char *name = malloc(PATH_MAX), *path = malloc(PATH_MAX);
    Error err = {0};
    memset(name, 'n', PATH_MAX);
    name[PATH_MAX - 2] = '\0';
    assert_int_equal(launcher_find_program(name, path, &err), -1);
    check_message(&err, "there is no such program");
    free(name);
    free(path);
}

// A path of the maximum length is found; a longer one is not cut.
static void long_paths(void **state) {
    char folders[PATH_MAX], wanted[PATH_MAX + 3], name[300], path[PATH_MAX], message[400];
    Error err = {0};
    const char *folder = *state;
    for (size_t length = PATH_MAX - 6; length < PATH_MAX - 2; length++) {
        memset(folders, '/', length - 6);
        memcpy(folders, folder, strlen(folder));
        memcpy(folders + length - 6, "second", 7);
        setenv("PATH", folders, 1);
        const bool fits = length + 3 < PATH_MAX;
        snprintf(wanted, sizeof wanted, "%s/sh", folders);
        assert_int_equal(launcher_find_program("sh", path, &err), fits ? 0 : -1);
        if (fits) assert_string_equal(path, wanted);
    }
    check_message(&err, "cannot run 'sh'");
    memset(name, 'n', sizeof name);
    name[299] = '\0';
    err = (Error){0};
    assert_int_equal(launcher_find_program(name, path, &err), -1);
    snprintf(message, sizeof message, NONE("%.80s…"), name);
    assert_string_equal(err.message, message);
}

#define PROGRAMS(test) cmocka_unit_test_setup_teardown(test, make_programs, remove_programs)

int main(void) {
    const struct CMUnitTest tests[] = {
        PROGRAMS(where_a_program_is), PROGRAMS(ddprun_does_not_know_its_file),
        PROGRAMS(ddprun_is_far_down), PROGRAMS(a_long_name),
        PROGRAMS(long_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
