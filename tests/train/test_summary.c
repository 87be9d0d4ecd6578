/* test_summary.c: the peaks of memory and the moved bytes in summary.json, from devices that moved
 * and allocated known numbers of bytes; the note to copies of a single process's run; the epochs of
 * evaluations and pictures; the augmentation of --augment; the progress bar's numbers.
 */
#include "tests/rigs/check.h"

#include <cjson/cJSON.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/log.h"
#include "common/data/loader.h"
#include "common/train/setup.h"
#include "common/train/trainer.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/temp_folder.h"

enum { DEVICES = 3, OF_A_STEP = 7, OF_AN_EVALUATION = 1000, OF_OTHER_RANKS = 30 };

static uint64_t moved;
static int steps_done, elsewhere; // elsewhere: devices of another process: 0 or 1

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    (void)self, (void)tape, (void)err;
    moved += OF_A_STEP;
    steps_done++;
    return 0;
}

static int sync_buffers(Strategy *self, Error *err) { // before each evaluation
    (void)self, (void)err;
    moved += OF_AN_EVALUATION;
    return 0;
}

// Another rank moved as many bytes as OF_OTHER_RANKS, on none of the devices. A device elsewhere
// sees the same data as this process's first one.
static void *sum_start(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)err;
    const size_t facts = count / (DEVICES + 1);
    if (elsewhere)
        memcpy(values + DEVICES * facts, values, facts * sizeof *values);
    else if (count == DEVICES + 1)
        values[DEVICES] += OF_OTHER_RANKS;
    return values;
}

static uint64_t moved_bytes(const Job *self) {
    (void)self;
    return moved;
}

static Augment augmented; // of the last training loader; crop_pad 99: none

Loader *__real_loader_create(const Dataset *set, Sampler *sampler, const Augment *augment,
                             size_t depth, Device *device);
Loader *__wrap_loader_create(const Dataset *set, Sampler *sampler, const Augment *augment,
                             size_t depth, Device *device);
Loader *__wrap_loader_create(const Dataset *set, Sampler *sampler, const Augment *augment,
                             size_t depth, Device *device) {
    augmented = augment ? *augment : (Augment){.crop_pad = 99};
    return __real_loader_create(set, sampler, augment, depth, device);
}

// The progress bar: each step once, of as many as the run has.
static size_t shown, shown_total;
static double shown_samples;

void __real_log_progress(RunLog *log, size_t done, size_t total, const char *what, double samples);
void __wrap_log_progress(RunLog *log, size_t done, size_t total, const char *what, double samples);
void __wrap_log_progress(RunLog *log, size_t done, size_t total, const char *what, double samples) {
    assert_int_equal(done, ++shown);
    assert_string_equal(what, "steps");
    shown_total = total;
    shown_samples = samples;
    __real_log_progress(log, done, total, what, samples);
}

// Runs the trainer in a process with three devices, of which the others' peaks are others[0] and
// others[1] bytes. Returns its output on stderr.
static char *run(TrainConfig config, const size_t others[2], size_t *first) {
    Options options = {.program = "test_summary"};
    Error err = {0};
    train_options(&options, &config);
    DataSource *data = must_get(train_open_data(&config, &err), &err);
    Device *devices[DEVICES];
    for (int i = 0; i < DEVICES; i++) devices[i] = must_get(device_open("cpu:0", &err), &err);
    for (int i = 1; i < DEVICES; i++) // freed: a peak stays
        device_free(devices[i], device_alloc(devices[i], others[i - 1]), others[i - 1]);
    Module *model = must_get(train_create_model(&config, data, devices[0], 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config.global_batch, true, false, 0, &err), &err);
    Job *job = job_single(strategy_single(model, devices[0], sampler));
    job->all = devices;
    job->all_count = DEVICES;
    job->devices = DEVICES + elsewhere;
    job->moved_bytes = moved_bytes;
    job->strategy->finish_backward = finish_backward;
    job->strategy->sync_buffers = sync_buffers;
    job->strategy->sum_start = sum_start;
    moved = 500; // before the run
    steps_done = 0;
    shown = 0;
    Captured captured = captured_begin();
    const int status = trainer_run(&config, &options, data, job, &err);
    char *said = captured_end(&captured);
    CHECK_OK(status == 0, err);
    assert_int_equal(shown, steps_done);
    assert_int_equal(shown_total, steps_done);
    assert_true(shown_samples == (double)config.global_batch);
    *first = devices[0]->peak_bytes;
    job->close(job);
    for (int i = 1; i < DEVICES; i++) device_close(devices[i]);
    dataset_close(data);
    return said;
}

static double number_of(const char *folder, const char *key) {
    char *path = memory_format("%s/summary.json", folder), text[4096] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    free(path);
    cJSON *summary = cJSON_Parse(text);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(summary, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s in %s", key, text);
    const double number = item->valuedouble;
    cJSON_Delete(summary);
    return number;
}

static void totals_are_of_all_devices_and_ranks(void **state) {
    static const size_t others[][2] = {{4096, 8192}, {8192, 4096}};
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@40";
    config.global_batch = 20; // two steps an epoch
    config.epochs = 3;
    config.out = *state;
    for (int i = 0; i < 2; i++) {
        size_t first;
        free(run(config, others[i], &first));
        assert_int_equal(steps_done, 6);
        assert_true(first > 0);
        assert_true(number_of(*state, "peak_bytes_device0") == (double)first);
        assert_true(number_of(*state, "peak_bytes_other") == 8192);
        check_close(number_of(*state, "moved_bytes_per_step"),
                    OF_A_STEP + (double)OF_OTHER_RANKS / 6, 1e-9, "moved bytes");
    }
}

// The first two lines of a run: counts, rounded up, and their plurals.
static void a_run_is_announced(void **state) {
    (void)state;
    static const struct {
        size_t global_batch, epochs;
        const char *says;
    } cases[] = {
        {20, 3, "global batch 20, 7 per device; 2 batches per epoch, 6 steps\n"},
        {21, 1, "global batch 21, 7 per device; 2 batches per epoch, 2 steps\n"},
        {40, 1, "global batch 40, 14 per device; 1 batch per epoch, 1 step\n"},
    };
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@40";
    config.no_eval = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t first;
        config.global_batch = cases[i].global_batch;
        config.epochs = cases[i].epochs;
        char *said = run(config, (const size_t[]){64, 64}, &first);
        assert_non_null(strstr(said, cases[i].says));
        // 10 x 10 and 10 x 5 weights, 10 and 5 biases
        static const char begin[] = "single: toy on synthetic, 165 parameters; 3 devices (cpu); ";
        assert_memory_equal(said, begin, sizeof begin - 1);
        free(said);
    }
}

// A process per core, as a starter makes them of a program of a single process.
static void copies_are_noticed(void **state) {
    (void)state;
    static const char *const names[] = {"RANK",         "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK",
                                        "PMI_RANK",     "PMI_SIZE",     "OMPI_COMM_WORLD_SIZE",
                                        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"};
    static const struct {
        const char *set[6];
        int copies;    // 0: nothing is said
        int elsewhere; // devices of another process, which trains the same model
    } cases[] = {
        {{NULL}, 0, 0},
        {{"RANK", "0", "WORLD_SIZE", "2"}, 2, 0},
        {{"RANK", "0", "WORLD_SIZE", "2"}, 0, 1},
        {{"RANK", "1", "WORLD_SIZE", "2"}, 0, 0},
        {{"RANK", "0", "WORLD_SIZE", "1"}, 0, 0},
        {{"RANK", "0"}, 0, 0},
        {{"WORLD_SIZE", "2"}, 0, 0},
        {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "3"}, 3, 0},
        {{"PMI_RANK", "0", "PMI_SIZE", "12"}, 12, 0},
        {{"SLURM_PROCID", "0", "SLURM_NTASKS", "4", "SLURM_STEP_ID", "0"}, 4, 0},
        {{"SLURM_PROCID", "0", "SLURM_NTASKS", "4"}, 0, 0}, // a batch script's
    };
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@40";
    config.steps = 1;
    config.no_eval = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t first;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) unsetenv(names[k]);
        for (int k = 0; k < 6 && cases[i].set[k]; k += 2)
            setenv(cases[i].set[k], cases[i].set[k + 1], 1);
        elsewhere = cases[i].elsewhere;
        char *said = run(config, (const size_t[]){64, 64}, &first);
        char *note = strstr(said, "note: "), wanted[40];
        snprintf(wanted, sizeof wanted, "note: %d processes were started", cases[i].copies);
        if ((note != NULL) != (cases[i].copies > 0) || (note && strstr(said, wanted) != note))
            fail_msg("case %zu: %s", i, said);
        free(said);
    }
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) unsetenv(names[k]);
    elsewhere = 0;
}

// The epochs of evaluations in the run's output: "epoch=0 epoch=1 ".
static void assert_evaluated(const TrainConfig *config, const char *wanted) {
    size_t first;
    char text[4096] = "", epochs[200] = "";
    FILE *out = tmpfile();
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    assert_true(out && dup2(fileno(out), STDOUT_FILENO) >= 0);
    free(run(*config, (const size_t[]){64, 64}, &first));
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    assert_true(pread(fileno(out), text, sizeof text - 1, 0) > 0);
    fclose(out);
    for (const char *at = text; (at = strstr(at, " test_loss=")); at++) {
        const char *line = at;
        while (line > text && line[-1] != '\n') line--;
        format_append(epochs, sizeof epochs, "%.*s ", (int)(at - line), line);
    }
    assert_string_equal(epochs, wanted);
}

// Four steps an epoch. The epoch in which a run ends has a number, too.
static void evaluations_and_pictures_have_their_epoch(void **state) {
    static const struct {
        size_t steps, every; // --steps and --dump-images
        const char *evaluated;
        int pictures; // bit e: of epoch e
    } cases[] = {
        {3, 1, "epoch=0 ", 1},         {4, 1, "epoch=0 ", 1},         {6, 1, "epoch=0 epoch=1 ", 3},
        {8, 2, "epoch=0 epoch=1 ", 2}, {8, 0, "epoch=0 epoch=1 ", 0},
    };
    TrainConfig config = train_config_default();
    config.model = "segnet";
    config.data = "shapes:8x8@8";
    config.global_batch = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = memory_format("%s/%zu", (const char *)*state, i);
        assert_int_equal(mkdir(folder, 0700), 0);
        config.out = folder;
        config.steps = cases[i].steps;
        config.dump_images = cases[i].every;
        assert_evaluated(&config, cases[i].evaluated);
        for (int e = 0; e < 4; e++) {
            char *path = memory_format("%s/images/epoch_%04d_sample_00.ppm", folder, e);
            assert_int_equal(access(path, F_OK) == 0, cases[i].pictures >> e & 1);
            free(path);
        }
        free(folder);
    }
}

// As --help says: a crop of the picture padded by 4, and flips, drawn by --seed.
static void training_augments_as_told(void **state) {
    (void)state;
    const size_t others[] = {64, 64};
    size_t first;
    TrainConfig config = train_config_default();
    config.steps = 1;
    config.no_eval = true;
    config.seed = 5;
    free(run(config, others, &first));
    assert_int_equal(augmented.crop_pad, 99);
    config.augment = true;
    free(run(config, others, &first));
    assert_int_equal(augmented.crop_pad, 4);
    assert_true(augmented.flip);
    assert_int_equal(augmented.seed, 5);
    config.no_eval = false; // the evaluation's loader comes last
    free(run(config, others, &first));
    assert_int_equal(augmented.crop_pad, 99);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(totals_are_of_all_devices_and_ranks, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(a_run_is_announced), cmocka_unit_test(copies_are_noticed),
        cmocka_unit_test(training_augments_as_told),
        cmocka_unit_test_setup_teardown(evaluations_and_pictures_have_their_epoch, temp_folder_make,
                                        temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
