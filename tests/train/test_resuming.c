/* test_resuming.c: which checkpoint --resume takes, the bits and settings of a run after several
 * interruptions, and the files of an earlier run that --out keeps.
 */
#include "tests/rigs/check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/tensor_files/checkpoint.h"
#include "common/train/setup.h"
#include "common/train/trainer.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/temp_folder.h"

static char *said; // the last run's stderr

// Runs the trainer. Returns its status, with the error in *err.
static int run(TrainConfig config, Error *err) {
    Options options = {.program = "test_resuming"};
    train_options(&options, &config);
    *err = (Error){0};
    DataSource *data = must_get(train_open_data(&config, err), err);
    Device *device = must_get(device_open("cpu:0", err), err);
    Module *model = must_get(train_create_model(&config, data, device, 0, err), err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config.global_batch, true, false, 0, err), err);
    Job *job = job_single(strategy_single(model, device, sampler));
    if (config.out) must_do(file_make_folder(config.out, err), err);
    free(said);
    Captured captured = captured_begin();
    const int status = trainer_run(&config, &options, data, job, err);
    said = captured_end(&captured);
    job->close(job);
    dataset_close(data);
    return status;
}

static void run_well(TrainConfig config) {
    Error err;
    CHECK_OK(run(config, &err) == 0, err);
}

static Precision amp; // of the runs

// Three batches an epoch, the last one incomplete. Without --save and --out.
static TrainConfig small(size_t steps) {
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@50";
    config.global_batch = 20;
    config.steps = steps;
    config.schedule.kind = SCHEDULE_CONSTANT;
    config.no_eval = true;
    config.amp = amp;
    return config;
}

static void run_to(size_t steps, const char *save, const char *out, const char *resume) {
    TrainConfig config = small(steps);
    config.save = save;
    config.out = out;
    config.resume = resume;
    run_well(config);
}

static Progress progress_of(const char *path) {
    Progress progress;
    Error err = {0};
    CHECK_OK(checkpoint_check(path, &progress, &err) == CHECKPOINT_WHOLE, err);
    return progress;
}

// ---- which checkpoint is taken -----------------------------------------------------------------

static void auto_prefers_save_and_a_folder_has_a_newest(void **state) {
    static const struct {
        const char *resume, *save, *out, *says;
    } cases[] = {
        {"auto", NULL, "new", "nothing to resume yet: starting at step 0\n"},
        {"auto", NULL, "empty", "nothing to resume yet: starting at step 0\n"},
        {"auto", "new-file", "folder", "nothing to resume yet: starting at step 0\n"},
        {"auto", "file", "folder", "resumed file at step 3\n"},
        {"auto", NULL, "folder", "resumed folder/last.safetensors at step 2\n"},
        {"folder", "file", "new", "resumed folder/last.safetensors at step 2\n"},
        {"file", NULL, "folder", "resumed file at step 3\n"},
    };
    assert_int_equal(chdir(*state), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[8];
        snprintf(folder, sizeof folder, "case%zu", i);
        assert_int_equal(mkdir(folder, 0700) + chdir(folder) + mkdir("empty", 0700), 0);
        run_to(2, NULL, "folder", NULL);
        run_to(3, "file", NULL, NULL);
        run_to(4, cases[i].save, cases[i].out, cases[i].resume);
        if (!strstr(said, cases[i].says))
            fail_msg("case %zu: no \"%s\" in %s", i, cases[i].says, said);
        assert_null(strstr(said, "the run is finished"));
        assert_int_equal(chdir(".."), 0);
    }
}

static void what_cannot_be_resumed(void **state) {
    Error err;
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(mkdir("empty", 0700) + mkdir("damaged", 0700), 0);
    FILE *file = fopen("damaged/cut.safetensors", "w");
    assert_true(file && fputs("cut", file) >= 0 && fclose(file) == 0);
    TrainConfig config = small(3);
    config.out = "out";
    config.save_every = 3; // the checkpoint of the epoch's last batch is then the previous one
    run_well(config);
    static const struct {
        const char *resume, *says;
        size_t steps;
        bool drop_last;
    } cases[] = {
        {"empty", "empty: holds no checkpoint", 4, false},
        {"damaged", "damaged: no whole checkpoint; 1 damaged", 4, false},
        {"auto", "damaged: no whole checkpoint; 1 damaged", 4, false},
        {"missing", "missing", 4, false},
        {"out/last.safetensors",
         "out/last.safetensors: stands at step 3, and this run ends at step 2", 2, false},
        {"out/previous.safetensors", "out/previous.safetensors: stands at batch 3 of an epoch of 2",
         4, true},
        {"out/previous.safetensors", NULL, 4, false},
        {"out/last.safetensors", NULL, 4, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config = small(cases[i].steps);
        config.resume = cases[i].resume;
        config.drop_last = cases[i].drop_last;
        if (strcmp(config.resume, "auto") == 0) config.out = "damaged";
        const int status = run(config, &err);
        if ((status != 0) != (cases[i].says != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (!cases[i].says) continue;
        check_message(&err, cases[i].says);
        assert_int_equal(err.status, STATUS_USAGE);
    }
    run_to(3, NULL, NULL, "out");
    assert_non_null(strstr(said, "the run is finished: 3 of 3 steps done, nothing is left"));
}

// ---- bits and settings -------------------------------------------------------------------------

static void assert_same_file(const char *one, const char *other) {
    static char a[1 << 16], b[1 << 16];
    FILE *files[] = {fopen(one, "r"), fopen(other, "r")};
    assert_true(files[0] && files[1]);
    const size_t bytes = fread(a, 1, sizeof a, files[0]);
    assert_in_range(bytes, 100, sizeof a - 1);
    assert_int_equal(fread(b, 1, sizeof b, files[1]), bytes);
    fclose(files[0]);
    fclose(files[1]);
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s and %s differ at byte %zu: %.40s, %.40s", one, other, i, a + i, b + i);
}

// A resume of a resume, from between two epochs and from within: the last checkpoint has the bytes
// of an uninterrupted run's, its Progress (of fp16 also the scale and the steps since it grew) and
// the optimizer file's checksum included.
static void two_interruptions_leave_no_trace(void **state) {
    static const size_t stops[][2] = {{1, 2}, {2, 4}, {3, 5}, {4, 6}};
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(mkdir("whole", 0700) + mkdir("parts", 0700), 0);
    for (amp = PRECISION_F32; amp <= PRECISION_F16; amp++) {
        run_to(7, "whole/saved.safetensors", NULL, NULL);
        for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
            run_to(stops[i][0], "parts/saved.safetensors", NULL, NULL);
            run_to(stops[i][1], "parts/saved.safetensors", NULL, "auto");
            run_to(7, "parts/saved.safetensors", NULL, "parts");
            assert_same_file("whole/saved.safetensors", "parts/saved.safetensors");
        }
    }
    const Progress last = progress_of("parts/saved.safetensors");
    assert_string_equal(last.amp, "fp16");
    assert_true(last.scale > 0);
    assert_true(last.growth_tracker > 0);
    amp = PRECISION_F32;
}

// State of a strategy in the checkpoint, of which one device has no use.
static void unused_state_is_told(void **state) {
    (void)state;
    Error err = {0};
    Strategy strategy = {0};
    Job *job = job_single(&strategy);
    RunLog log = log_open(false);
    SafeEntry entry = {.name = "powersgd.iteration"};
    for (size_t count = 0; count < 2; count++) {
        Captured captured = captured_begin();
        const SafeTensors content = {.entries = &entry, .count = count};
        assert_int_equal(job->load_state(job, "FILE", &content, &log, &err), 0);
        char *told = captured_end(&captured);
        assert_string_equal(told, count == 0
                                      ? ""
                                      : "FILE also holds powersgd.iteration, state that this "
                                        "run does not use: it continues, but not bit for bit\n");
        free(told);
    }
    free(job);
}

// Changes the checkpoint's number of devices.
static void rewrite(const char *path, const TrainConfig *config, uint64_t devices) {
    Error err = {0};
    const OptimizerConfig of = train_optimizer(config);
    SafeTensors state = {0};
    Progress progress = {0};
    DataSource *data = must_get(train_open_data(config, &err), &err);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    Module *model = must_get(train_create_model(config, data, device, 0, &err), &err);
    Optimizer *optimizer = optimizer_create(model, &of);
    CHECK_OK(checkpoint_load(path, model, optimizer, &state, &progress, &err) == 0, err);
    progress.devices = devices;
    CHECK_OK(checkpoint_save(path, NULL, model, optimizer, &state, &progress, &err) == 0, err);
    safetensors_free(&state);
    optimizer_close(optimizer);
    module_close(model);
    device_close(device);
    dataset_close(data);
}

// The checkpoint of a resumed run has that run's settings, not those of the one it continues.
static void a_resumed_runs_settings_are_its_own(void **state) {
    Error err;
    assert_int_equal(chdir(*state), 0);
    TrainConfig config = small(2);
    config.optimizer = OPTIMIZER_ADAMW;
    config.save = "saved";
    run_well(config);
    rewrite("saved", &config, 4);
    const Progress first = progress_of("saved");
    config.resume = "saved";
    config.steps = 3;
    config.schedule.lr = 0.125;
    config.schedule.kind = SCHEDULE_STEP;
    config.weight_decay = 0.25;
    config.betas[0] = 0.5;
    CHECK_OK(run(config, &err) == 0, err);
    const char *const notes[] = {[NOTE_LR] = "0.125",        [NOTE_SCHEDULE] = "step",
                                 [NOTE_MOMENTUM] = "0.9",    [NOTE_WEIGHT_DECAY] = "0.25",
                                 [NOTE_BETAS] = "0.5,0.999", [NOTE_STEPS] = "3",
                                 [NOTE_SAMPLER_SEED] = "0",  [NOTE_TEXT] = ""};
    const Progress second = progress_of("saved");
    for (int i = 0; i < PROGRESS_NOTES; i++) assert_string_equal(second.notes[i], notes[i]);
    assert_string_equal(first.notes[NOTE_LR], "0.08");
    assert_string_equal(first.notes[NOTE_STEPS], "2");
    for (int i = 0; i < PROGRESS_NOTES; i++) {
        const bool changed = i != NOTE_MOMENTUM && i != NOTE_SAMPLER_SEED && i != NOTE_TEXT;
        assert_int_equal(strcmp(first.notes[i], second.notes[i]) != 0, changed);
    }
    assert_int_equal(first.devices, 4);
    assert_int_equal(second.devices, 1);
    static const char *const differences[] = {
        "--lr 0.08, this run has 0.125:",
        "--schedule constant, this run has step:",
        "--weight-decay 0.01, this run has 0.25:",
        "--betas 0.9,0.999, this run has 0.5,0.999:",
        "steps in all 2, this run has 3:",
        "devices 4, this run has 1: it continues, but not bit for bit"};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        assert_non_null(strstr(said, differences[i]));
    run_to(1, "by-sgd", NULL, NULL);
    assert_string_equal(progress_of("by-sgd").notes[NOTE_BETAS], ""); // sgd has none
}

// ---- the files of --out ------------------------------------------------------------------------

// "best 3, last 4": the checkpoints in the folder with their steps.
static void assert_holds(const char *folder, const char *wanted) {
    static const char *const names[] = {"best", "last", "previous", "model_00001", "model_00002"};
    char text[200] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = memory_format("%s/%s.safetensors", folder, names[i]);
        if (access(path, F_OK) == 0)
            format_append(text, sizeof text, "%s%s %ju", *text ? ", " : "", names[i],
                          (uintmax_t)progress_of(path).step);
        free(path);
    }
    assert_string_equal(text, wanted);
}

static TrainConfig keeping(size_t steps, const char *resume) {
    TrainConfig config = small(steps);
    config.out = "out";
    config.resume = resume;
    config.keep_epochs = 1;
    config.schedule.lr = 1e-3; // each evaluation is better than the one before
    config.no_eval = false;
    return config;
}

static void another_runs_checkpoints_go_and_ones_own_stay(void **state) {
    assert_int_equal(chdir(*state), 0);
    run_to(4, "elsewhere", NULL, NULL);
    run_well(keeping(6, NULL));
    assert_holds("out", "best 6, last 6, previous 3, model_00001 3, model_00002 6");
    run_well(keeping(7, "out")); // its own folder: the last one becomes the previous one
    assert_holds("out", "best 7, last 7, previous 6, model_00001 3, model_00002 6");
    run_well(keeping(5, NULL)); // a new run
    assert_holds("out", "best 5, last 5, previous 3, model_00001 3");
    TrainConfig config = keeping(5, "elsewhere");
    config.no_eval = true;
    run_well(config); // of another folder: nothing here becomes its previous one
    assert_holds("out", "last 5");
    assert_int_equal(chdir("out"), 0);
    config = keeping(6, "last.safetensors"); // a name without a folder
    config.out = ".";
    run_well(config);
    assert_holds(".", "best 6, last 6, previous 5, model_00002 6");
    assert_int_equal(chdir(".."), 0);
    // A name without a folder is in this folder, which is not --out.
    assert_int_equal(rename("elsewhere", "last.safetensors"), 0);
    run_well(keeping(5, "last.safetensors"));
    assert_holds("out", "best 5, last 5");
}

static void an_equal_score_is_not_the_best(void **state) {
    assert_int_equal(chdir(*state), 0);
    TrainConfig config = keeping(6, NULL);
    config.schedule.lr = 0;
    run_well(config);
    assert_holds("out", "best 3, last 6, previous 3, model_00001 3, model_00002 6");
}

static int leave_folder(void **state) {
    free(said);
    said = NULL;
    return chdir("/") + temp_folder_remove(state);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, leave_folder)
    const struct CMUnitTest tests[] = {IN_FOLDER(auto_prefers_save_and_a_folder_has_a_newest),
                                       IN_FOLDER(what_cannot_be_resumed),
                                       IN_FOLDER(two_interruptions_leave_no_trace),
                                       cmocka_unit_test(unused_state_is_told),
                                       IN_FOLDER(a_resumed_runs_settings_are_its_own),
                                       IN_FOLDER(another_runs_checkpoints_go_and_ones_own_stay),
                                       IN_FOLDER(an_equal_score_is_not_the_best)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
