/* test_outputs.c: the files that a run locks (outputs_claim), their names, and the note about a
 * file system without locks.
 */
#include "tests/rigs/check.h"

#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/train/outputs.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/temp_folder.h"

static bool has_locks;
static uint64_t ahead_ns; // added to the clock, 2 s more per call: waits for locks time out

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if (has_locks) return __real_flock(fd, operation);
    errno = ENOLCK;
    return -1;
}

uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns(void) {
    ahead_ns += 2000000000;
    return __real_clock_ns() + ahead_ns;
}

static void each_output_is_locked(void **state) {
    static const struct {
        const char *out, *save;
        const char *locks; // expected: o: the folder's, l: its last checkpoint's, s: --save's
    } cases[] = {{NULL, NULL, ""}, {"out", NULL, "ol"}, {NULL, "file", "s"}, {"out", "file", "os"}};
    static const struct {
        char letter;
        const char *name;
    } locks[] = {{'o', "out/.lock"}, {'l', "out/last.safetensors.lock"}, {'s', "file.lock"}};
    assert_int_equal(chdir(*state), 0);
    has_locks = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const TrainConfig config = {.out = cases[i].out, .save = cases[i].save};
        Outputs outputs = {0};
        Error err = {0};
        RunLog log = log_open(false);
        CHECK_OK(outputs_claim(&outputs, &config, &err) == 0, err);
        for (int k = 0; k < 3; k++)
            assert_int_equal(access(locks[k].name, F_OK) == 0,
                             strchr(cases[i].locks, locks[k].letter) != NULL);
        Captured captured = captured_begin();
        outputs_announce(&outputs, &config, &log);
        outputs_release(&outputs);
        char *said = captured_end(&captured);
        assert_string_equal(said, "");
        free(said);
        for (int k = 0; k < 3; k++) assert_int_not_equal(access(locks[k].name, F_OK), 0);
        outputs_release(&outputs); // a second release does nothing
    }
}

// One run's --save is another run's last checkpoint.
static void an_output_has_one_run(void **state) {
    const TrainConfig folder = {.out = "out"}, file = {.save = "link"}, none = {.out = "other"};
    Outputs first = {0}, second = {0}, third = {0};
    Error err = {0};
    assert_int_equal(chdir(*state), 0);
    has_locks = true;
    assert_int_equal(symlink("out/last.safetensors", "link"), 0);
    CHECK_OK(outputs_claim(&first, &folder, &err) == 0, err);
    assert_int_equal(outputs_claim(&second, &file, &err), -1);
    check_message(&err, "--save link: in use by process ");
    err = (Error){0};
    assert_int_equal(outputs_claim(&second, &folder, &err), -1);
    check_message(&err, "--out out: in use by process ");
    err = (Error){0};
    CHECK_OK(outputs_claim(&third, &none, &err) == 0, err);
    outputs_release(&third);
    outputs_release(&second);
    outputs_release(&first);
    CHECK_OK(outputs_claim(&second, &file, &err) == 0, err);
    outputs_release(&second);
}

static void missing_locks_are_announced(void **state) {
    const TrainConfig config = {.out = "out", .save = "file"};
    Outputs outputs = {0};
    Error err = {0};
    RunLog log = log_open(false);
    assert_int_equal(chdir(*state), 0);
    has_locks = false;
    CHECK_OK(outputs_claim(&outputs, &config, &err) == 0, err);
    Captured captured = captured_begin();
    outputs_announce(&outputs, &config, &log);
    char *said = captured_end(&captured);
    assert_string_equal(
        said,
        "--out out: its file system has no locks; another job there would not be noticed\n"
        "--save file: its file system has no locks; another job there would not be noticed\n");
    free(said);
    outputs_release(&outputs);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {IN_FOLDER(each_output_is_locked),
                                       IN_FOLDER(an_output_has_one_run),
                                       IN_FOLDER(missing_locks_are_announced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
