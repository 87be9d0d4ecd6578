/* test_checkpoint.c: a checkpoint is a pair of files that survives crashes.
 *
 * A saving child is killed before each of its system calls (ptrace), at many sizes of its files
 * (RLIMIT_FSIZE) and on a full disk; afterwards the folder must contain a complete checkpoint, the
 * old or the new one, and the next save must remove all remains. A flipped bit in either file must
 * be detected.
 */
#include "tests/rigs/checkpoint_rig.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "tests/rigs/files.h"
#include "tests/rigs/temp_folder.h"

// ---- saving and loading ----------------------------------------------------------------------

static void test_round_trip(void **state) {
    const OptimizerKind kinds[] = {OPTIMIZER_SGD, OPTIMIZER_SGD, OPTIMIZER_ADAMW};
    char *path = temp_folder_path(state, "last.safetensors");
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        Rig rig = rig_open(kinds[i], i == 1 ? 0.9 : 0);
        CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
        assert_int_equal(rig_load(&rig, path), 40);
        assert_int_equal(count_files(*state, ""), 2);
        if (i == 2) {
            Rig other = rig_open(OPTIMIZER_SGD, 0.9);
            assert_refused(&other, path, "was written by optimizer adamw, this run uses sgd");
            rig_close(&other);
        }
        rig_close(&rig);
    }
    free(path);
}

// Two saves at the same step, as at the end of an epoch, and two different runs at the same step.
static void test_one_step_twice(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *last = temp_folder_path(state, "last.safetensors");
    char *previous = temp_folder_path(state, "previous.safetensors");
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rig_save(&rig, 40, last, previous, &err) == 0, err);
        assert_int_equal(rig_load(&rig, last), 40);
        if (i > 0) assert_int_equal(rig_load(&rig, previous), 40);
    }
    assert_int_equal(count_files(*state, ".optimizer"), 1);
    rig.optimizer->state[0][0][0] = 5;
    Progress progress = progress_at(40);
    Carried memory;
    SafeTensors carried = carry(&memory, 40);
    CHECK_OK(
        checkpoint_save(last, previous, rig.module, rig.optimizer, &carried, &progress, &err) == 0,
        err);
    assert_int_equal(rig_load(&rig, previous), 40);
    assert_int_equal(count_files(*state, ".optimizer"), 2);
    rig_save(&rig, 40, last, previous, &err);
    memory.numbers[7] = 5; // only the strategy's state differs
    CHECK_OK(
        checkpoint_save(last, previous, rig.module, rig.optimizer, &carried, &progress, &err) == 0,
        err);
    assert_int_equal(rig_load(&rig, previous), 40);
    assert_int_equal(count_files(*state, ".optimizer"), 2);
    rig_close(&rig);
    free(last);
    free(previous);
}

// A strategy without state, as most are.
static void test_nothing_carried(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors");
    Progress progress = progress_at(40);
    SafeTensors carried = {0};
    CHECK_OK(checkpoint_save(path, NULL, rig.module, rig.optimizer, &carried, &progress, &err) == 0,
             err);
    CHECK_OK(checkpoint_load(path, rig.module, rig.optimizer, &carried, &progress, &err) == 0, err);
    assert_int_equal(carried.count, 0);
    safetensors_free(&carried);
    rig_close(&rig);
    free(path);
}

static void test_previous_is_kept(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *last = temp_folder_path(state, "last.safetensors");
    char *previous = temp_folder_path(state, "previous.safetensors");
    char *best = temp_folder_path(state, "best.safetensors");
    CHECK_OK(rig_save(&rig, 7, best, NULL, &err) == 0, err);
    for (uint64_t step = 10; step <= 40; step += 10) {
        CHECK_OK(rig_save(&rig, step, last, previous, &err) == 0, err);
        assert_int_equal(rig_load(&rig, last), step);
        if (step > 10) assert_int_equal(rig_load(&rig, previous), step - 10);
    }
    assert_int_equal(rig_load(&rig, best), 7);
    assert_int_equal(count_files(*state, ""), 6);
    checkpoint_remove(previous); // saved last under this name
    assert_int_equal(rig_load(&rig, last), 40);
    assert_int_equal(count_files(*state, ""), 5);
    checkpoint_remove(best);
    checkpoint_remove(best); // does not exist: no effect
    assert_int_equal(count_files(*state, ""), 3);
    CHECK_OK(rig_save(&rig, 50, last, NULL, &err) == 0, err);
    assert_int_equal(count_files(*state, ""), 2);
    rig_close(&rig);
    free(last);
    free(previous);
    free(best);
}

static void test_every_bit_counts(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors");
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    char *optimizer = find_file(*state, ".optimizer");
    char *files[] = {path, optimizer};
    for (int f = 0; f < 2; f++) {
        size_t bytes;
        char *data = read_whole(files[f], &bytes);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
            write_whole(files[f], data, bytes);
            assert_refused(&rig, path, *state);
            data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
        }
        data[bytes - 1] = (char)(data[bytes - 1] ^ 4); // must be reported as damage of the tensors
        write_whole(files[f], data, bytes);
        assert_refused(&rig, path, "the file is damaged: its checksum is ");
        data[bytes - 1] = (char)(data[bytes - 1] ^ 4);
        write_whole(files[f], data, bytes);
        assert_int_equal(rig_load(&rig, path), 40);
        free(data);
    }
    rig_close(&rig);
    free(optimizer);
    free(path);
}

static void test_foreign_optimizer_file(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors");
    CHECK_OK(rig_save(&rig, 41, path, NULL, &err) == 0, err);
    size_t bytes;
    char *optimizer = find_file(*state, ".optimizer");
    char *foreign = read_whole(optimizer, &bytes); // valid, but of another step
    free(optimizer);
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    optimizer = find_file(*state, ".optimizer");
    write_whole(optimizer, foreign, bytes);
    assert_refused(&rig, path, "is not the file that was saved with last.safetensors");
    unlink(optimizer);
    assert_refused(&rig, path, "No such file");
    rig_close(&rig);
    free(foreign);
    free(optimizer);
    free(path);
}

// ---- crashes ---------------------------------------------------------------------------------

typedef struct Scene {
    Rig rig;
    char *folder, *last, *previous;
} Scene;

static Scene scene_open(void **state) {
    return (Scene){.rig = rig_open(OPTIMIZER_SGD, 0.9),
                   .folder = *state,
                   .last = temp_folder_path(state, "last.safetensors"),
                   .previous = temp_folder_path(state, "previous.safetensors")};
}

static void scene_close(Scene *scene) {
    rig_close(&scene->rig);
    free(scene->last);
    free(scene->previous);
}

// Saves two complete checkpoints, of steps 1 and 2.
static void scene_set(Scene *scene) {
    Error err = {0};
    empty_folder(scene->folder);
    CHECK_OK(rig_save(&scene->rig, 1, scene->last, scene->previous, &err) == 0, err);
    CHECK_OK(rig_save(&scene->rig, 2, scene->last, scene->previous, &err) == 0, err);
}

// After a save of step 3 was killed: there are still two complete checkpoints, and the next save
// removes the remains. Returns the last checkpoint's step.
static uint64_t scene_check(Scene *scene) {
    Error err = {0};
    uint64_t last = rig_load(&scene->rig, scene->last);
    uint64_t previous = rig_load(&scene->rig, scene->previous);
    if (!(last == 2 && previous == 1) && !(last == 3 && (previous == 1 || previous == 2)))
        fail_msg("last is at %d, previous at %d", (int)last, (int)previous);
    RunLog log = log_open(true);
    char *newest;
    CHECK_OK(checkpoint_find(scene->folder, &newest, &log, &err) == 0, err);
    assert_string_equal(newest, scene->last);
    free(newest);
    log_close(&log);
    CHECK_OK(rig_save(&scene->rig, 4, scene->last, scene->previous, &err) == 0, err);
    assert_int_equal(rig_load(&scene->rig, scene->last), 4);
    assert_int_equal(rig_load(&scene->rig, scene->previous), last);
    assert_int_equal(count_files(scene->folder, ""), 4);
    return last;
}

enum { STATUS_REFUSED = 33 };

// In a child: saves step 3 and exits with 0, or with STATUS_REFUSED if the save failed with
// `words`.
static _Noreturn void save_and_exit(Scene *scene, const char *words) {
    Error err = {0};
    if (rig_save(&scene->rig, 3, scene->last, scene->previous, &err) == 0) _exit(0);
    _exit(strstr(err.message, words) && err.status == STATUS_FAILED ? STATUS_REFUSED : 1);
}

// Runs a save in a child that is killed before its system call number `calls` (for odd numbers:
// after it). Returns false if the child exited earlier. *denied: ptrace is not permitted.
static bool save_until_call(Scene *scene, int calls, bool *denied) {
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        raise(SIGSTOP);
        save_and_exit(scene, "");
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    *denied = WIFEXITED(status);
    for (int i = 0; WIFSTOPPED(status) && i < calls; i++) {
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (!WIFSTOPPED(status)) return false;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    return true;
}

static void test_killed_at_every_call(void **state) {
    Scene scene = scene_open(state);
    size_t kept = 0, renewed = 0;
    bool denied = false;
    for (int calls = 0;; calls++) {
        scene_set(&scene);
        bool killed = save_until_call(&scene, calls, &denied);
        if (denied) break;
        scene_check(&scene) == 2 ? kept++ : renewed++;
        if (!killed) break;
    }
    scene_close(&scene);
    if (denied) skip();
    print_message("killed at %zu places: %zu times the old one, %zu times the new one\n",
                  kept + renewed - 1, kept, renewed);
    assert_true(kept > 20 && renewed > 4);
}

// A limit on the size of files kills the process within write(2) or, with the signal ignored, makes
// it fail.
static void save_with_limit(Scene *scene, size_t bytes, bool die, bool *finished) {
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {bytes, bytes}, none = {0, 0};
        signal(SIGXFSZ, die ? SIG_DFL : SIG_IGN);
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_FSIZE, &limit);
        save_and_exit(scene, "cannot write ");
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    *finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool as_expected = die ? WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ
                           : WIFEXITED(status) && WEXITSTATUS(status) == STATUS_REFUSED;
    assert_true(*finished || as_expected);
}

static void test_killed_inside_writes(void **state) {
    Scene scene = scene_open(state);
    for (int die = 0; die < 2; die++) {
        size_t kept = 0, orphans = 0;
        bool finished = false;
        for (size_t bytes = 0; !finished; bytes += bytes < 64 ? 1 : 7) {
            scene_set(&scene);
            save_with_limit(&scene, bytes, die, &finished);
            // A failed save cleans up at once; a killed one may leave a third optimizer file.
            if (!die) assert_int_equal(count_files(scene.folder, ""), 4);
            orphans += count_files(scene.folder, ".optimizer") == 3;
            bool old = scene_check(&scene) == 2;
            assert_true(old == !finished);
            kept += old;
        }
        print_message("stopped at %zu sizes\n", kept);
        assert_true(kept > 100 && (orphans > 10) == die);
    }
    scene_close(&scene);
}

static void test_full_disk(void **state) {
    Scene scene = scene_open(state);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) { // mounts a file system of 8 pages, private to this child
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", scene.folder, "tmpfs", 0, "size=32k") != 0)
            _exit(77);
        scene_set(&scene);
        char *filler = memory_format("%s/filler", scene.folder);
        FILE *file = fopen(filler, "wb");
        for (int i = 0; i < 32 << 10; i++) fputc('x', file);
        fclose(file);
        Error err = {0};
        if (rig_save(&scene.rig, 3, scene.last, scene.previous, &err) == 0) _exit(1);
        check_message(&err, "No space left on device");
        if (rig_load(&scene.rig, scene.last) != 2) _exit(2);
        unlink(filler);
        _exit(scene_check(&scene) == 2 ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    scene_close(&scene);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_int_equal(status, 0);
}

static void test_read_only_folder(void **state) {
    enum { NOBODY = 65534 };
    Scene scene = scene_open(state);
    scene_set(&scene);
    assert_int_equal(chmod(scene.folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(NOBODY) != 0) _exit(77);
        Error err = {0};
        if (rig_save(&scene.rig, 3, scene.last, scene.previous, &err) == 0) _exit(1);
        check_message(&err, "Permission denied");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(scene.folder, 0755), 0);
    assert_int_equal(scene_check(&scene), 2);
    scene_close(&scene);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_int_equal(status, 0);
}

// ---- remains of earlier saves ----------------------------------------------------------------

static void test_sweeping(void **state) {
    static const char *const gone[] = {
        "last.safetensors.7.0.tmp", "last.safetensors.99999.42.tmp", "previous.safetensors.7.0.tmp",
        "last.safetensors.3.0123abcd.optimizer", "last.safetensors.3.0123abcd.optimizer.7.0.tmp"};
    static const char *const stay[] = {"last.safetensors.tmp",
                                       "last.safetensors.7.tmp",
                                       "last.safetensors.7.0.tmp2",
                                       "last.safetensors.copy",
                                       "last.safetensors.3.0123ABCD.optimizer",
                                       "last.safetensors.3.0123abc.optimizer",
                                       "last.safetensors.3.0123abcde.optimizer",
                                       "last.safetensors..0123abcd.optimizer",
                                       "z",
                                       "z.7.0.tmp",
                                       "last.safetensors.3.0123abcd.optimizer.bak",
                                       "my-last.safetensors.3.0123abcd.optimizer",
                                       "last.safetensorsx.7.0.tmp",
                                       "best.safetensors.7.0.tmp",
                                       "best.safetensors.3.0123abcd.optimizer",
                                       "last.safetensors.8.0.tmp"};
    const size_t gone_count = sizeof gone / sizeof *gone, stay_count = sizeof stay / sizeof *stay;
    Scene scene = scene_open(state);
    scene_set(&scene);
    char *paths[sizeof gone / sizeof *gone + sizeof stay / sizeof *stay];
    for (size_t i = 0; i < gone_count + stay_count; i++) {
        paths[i] = temp_folder_path(state, i < gone_count ? gone[i] : stay[i - gone_count]);
        write_whole(paths[i], "x", 1);
    }
    // The newest temporary file belongs to a live process, which holds its lock.
    Error err = {0};
    AtomicFile live;
    char *name = temp_folder_path(state, "last.safetensors");
    CHECK_OK(file_begin(&live, name, &err) == 0, err);
    assert_int_equal(rename(live.temporary, paths[gone_count + stay_count - 1]), 0);

    CHECK_OK(rig_save(&scene.rig, 3, scene.last, scene.previous, &err) == 0, err);
    for (size_t i = 0; i < gone_count + stay_count; i++) {
        bool there = access(paths[i], F_OK) == 0;
        if (there != (i >= gone_count))
            fail_msg("%s: %s", paths[i], there ? "is there" : "is gone");
        free(paths[i]);
    }
    file_abandon(&live);
    free(name);
    scene_close(&scene);
}

// An unreadable checkpoint may become readable later: a failing save removes its own files, but
// keeps the optimizer files of both checkpoints.
static void test_unreadable_ones_keep_their_files(void **state) {
    Scene scene = scene_open(state);
    char *checkpoints[] = {scene.last, scene.previous};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        bool finished;
        scene_set(&scene);
        char *whole = read_whole(checkpoints[i], &bytes);
        write_whole(checkpoints[i], "??", 2);
        save_with_limit(&scene, 64, false, &finished);
        assert_false(finished);
        write_whole(checkpoints[i], whole, bytes);
        assert_int_equal(scene_check(&scene), 2); // both are complete
        free(whole);
    }
    scene_close(&scene);
}

// ---- finding the newest checkpoint -----------------------------------------------------------

// Calls checkpoint_find; `said` gets its output on stderr.
static int find(const char *folder, char **path, char said[4096], Error *err) {
    char *file = memory_format("%s/stderr", folder);
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    FILE *to = fopen(file, "w+");
    dup2(fileno(to), STDERR_FILENO);
    RunLog log = log_open(false);
    int status = checkpoint_find(folder, path, &log, err);
    log_close(&log);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(to);
    said[fread(said, 1, 4095, to)] = '\0';
    fclose(to);
    unlink(file);
    free(file);
    return status;
}

static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

static void damage(const char *path) {
    size_t bytes;
    char *data = read_whole(path, &bytes);
    data[bytes - 1] ^= 1;
    write_whole(path, data, bytes);
    free(data);
}

static void test_finding_the_newest_whole_one(void **state) {
    Scene scene = scene_open(state);
    Error err = {0};
    char said[4096], *path, *best = temp_folder_path(state, "best.safetensors");
    char *weights = temp_folder_path(state, "weights.safetensors");
    assert_int_equal(find(*state, &path, said, &err), 0); // an empty folder
    assert_null(path);
    CHECK_OK(safetensors_save_module(weights, scene.rig.module, NULL, 0, &err) == 0, err);
    assert_int_equal(find(*state, &path, said, &err), 0); // no checkpoint in it
    assert_null(path);
    assert_string_equal(said, "");
    scene_set(&scene);
    CHECK_OK(safetensors_save_module(weights, scene.rig.module, NULL, 0, &err) == 0, err);
    CHECK_OK(rig_save(&scene.rig, 9, best, NULL, &err) == 0, err);

    // The checkpoints are damaged one after another, from the newest on.
    assert_int_equal(find(*state, &path, said, &err), 0);
    assert_string_equal(path, best);
    assert_string_equal(said, "");
    free(path);
    damage(best);
    assert_int_equal(find(*state, &path, said, &err), 0);
    assert_string_equal(path, scene.last);
    assert_int_equal(count_lines(said), 1);
    free(path);
    char *optimizer = find_file(*state, "last.safetensors.2.");
    assert_int_equal(unlink(optimizer), 0);
    free(optimizer);
    assert_int_equal(find(*state, &path, said, &err), 0);
    assert_string_equal(path, scene.previous);
    assert_int_equal(count_lines(said), 2);
    assert_non_null(strstr(said, "skipped "));
    assert_non_null(strstr(said, "best.safetensors: the file is damaged"));
    assert_non_null(strstr(said, ".optimizer: No such file or directory\n"));
    free(path);
    assert_int_equal(truncate(scene.previous, 100), 0);
    assert_int_equal(find(*state, &path, said, &err), -1);
    assert_null(path);
    check_message(&err, "no whole checkpoint; 3 damaged");
    free(best);
    free(weights);
    scene_close(&scene);
}

// Hundreds of saves call fsync: a folder in memory is used if there is one.
static int make_folder(void **state) {
    char *path = memory_format("/dev/shm/ddpc.XXXXXX");
    *state = path;
    if (mkdtemp(path)) return 0;
    free(path);
    return temp_folder_make(state);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_round_trip),
        IN_FOLDER(test_one_step_twice),
        IN_FOLDER(test_nothing_carried),
        IN_FOLDER(test_previous_is_kept),
        IN_FOLDER(test_every_bit_counts),
        IN_FOLDER(test_foreign_optimizer_file),
        IN_FOLDER(test_killed_at_every_call),
        IN_FOLDER(test_killed_inside_writes),
        IN_FOLDER(test_full_disk),
        IN_FOLDER(test_read_only_folder),
        IN_FOLDER(test_sweeping),
        IN_FOLDER(test_unreadable_ones_keep_their_files),
        IN_FOLDER(test_finding_the_newest_whole_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
