/* test_record.c: the step times that are kept, the text written for a step, the rows of steps.csv
 * that a resumed run keeps, errors of that file, and the steps whose gradients are saved.
 */
#include "tests/rigs/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/train/record.h"
#include "tests/rigs/temp_folder.h"

static Sampler sampler = {.world = 1};
static Strategy strategy = {.sampler = &sampler};
static const Job job = {.strategy = &strategy};

static void step_times_have_a_limit(void **state) {
    (void)state;
    static const struct {
        size_t steps, capacity;
    } cases[] = {{0, 0}, {3, 3}, {1048575, 1048575}, {1048576, 1048576}, {1048577, 1048576}};
    const TrainConfig config = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Record record = record_open(&config, &job, cases[i].steps);
        assert_int_equal(record.step_capacity, cases[i].capacity);
        assert_true(isnan(record.final_loss) && isnan(record.final_score.accuracy));
        for (uint64_t ns = 1; i < 2 && ns <= 5; ns++) record_step_time(&record, ns);
        assert_int_equal(record.step_count, i < 2 ? cases[i].capacity : 0);
        for (size_t s = 0; s < record.step_count; s++) assert_int_equal(record.step_ns[s], s + 1);
        record_close(&record);
        assert_null(record.step_ns);
    }
}

// A run that resumes at step `first` keeps the rows `wanted` of steps.csv.
static void assert_kept(void **state, const char *rows, uint64_t first, const char *wanted) {
    const TrainConfig config = {.out = *state};
    char *path = temp_folder_path(state, "steps.csv"), text[400] = "";
    Error err = {0};
    FILE *file = fopen(path, "w");
    fputs(rows, file);
    fclose(file);
    Record record = record_open(&config, &job, 9);
    CHECK_OK(record_start(&record, first, &err) == 0, err);
    assert_non_null(record.steps);
    record_close(&record);
    file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if (*wanted)
        assert_string_equal(text, wanted);
    else
        assert_memory_equal(text, "step,epoch,lr,loss,", 19);
    free(path);
}

// steps.csv is a folder: a new run cannot write it, a resumed one not read it.
static void rows_in_a_folder_are_an_error(void **state) {
    const TrainConfig config = {.out = *state};
    char *path = temp_folder_path(state, "steps.csv");
    assert_int_equal(mkdir(path, 0700), 0);
    for (uint64_t first = 0; first < 2; first++) {
        Error err = {0};
        Record record = record_open(&config, &job, 9);
        assert_int_equal(record_start(&record, first, &err), -1);
        assert_non_null(strstr(err.message, "steps.csv: "));
        record_close(&record);
    }
    rmdir(path);
    free(path);
}

static void later_rows_are_dropped(void **state) {
    static const char rows[] = "step,loss\n0,a\n5,b\n9,c\n10,d\n";
    assert_kept(state, rows, 10, "step,loss\n0,a\n5,b\n9,c\n");
    assert_kept(state, rows, 9, "step,loss\n0,a\n5,b\n");
    assert_kept(state, rows, 11, rows);
    assert_kept(state, rows, 99, rows);
    assert_kept(state, "step,loss\n0,a\n5,b", 99, "step,loss\n0,a\n");      // incomplete last row
    assert_kept(state, "step,loss\n\n0,a\n5,b\n", 5, "step,loss\n\n0,a\n"); // a line without a row
    assert_kept(state, rows, 0, "");                                        // a new run
    assert_kept(state, "", 3, "");
    const TrainConfig none = {0}, folder = {.out = "no such folder"};
    Error err = {0};
    Record record = record_open(&none, &job, 9);
    CHECK_OK(record_start(&record, 0, &err) == 0, err);
    assert_null(record.steps);
    record_close(&record);
    record = record_open(&folder, &job, 9);
    assert_int_equal(record_start(&record, 0, &err), -1);
    assert_string_equal(err.message, "no such folder/steps.csv: No such file or directory");
    record_close(&record);
}

// Compares the line of a step on stdout, its row in steps.csv (after the header), and the text of
// an evaluation.
static void assert_written(void **state, const TrainConfig *config, const Score *score,
                           const char *line, const char *row, const char *evaluation) {
    Error err = {0};
    char *path = temp_folder_path(state, "steps.csv"), text[1000] = "";
    FILE *said = tmpfile();
    Record record = record_open(config, &job, 9);
    CHECK_OK(record_start(&record, 0, &err) == 0, err);
    const StepRecord step = {.step = 7,
                             .epoch = 2,
                             .lr = 0.1234567890123,
                             .loss = 1.23456789012,
                             .score = *score,
                             .scale = 4096,
                             .ns = 12500250,
                             .samples = 64};
    Profile profile = {.step_communication = 1500000};
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        profile.step[phase] = 1000000 * (uint64_t)phase + 500;
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    assert_true(dup2(fileno(said), STDOUT_FILENO) >= 0);
    record_step(&record, &step, &profile);
    record_evaluation(&record, "epoch=2", &(Evaluation){0.5, *score});
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    assert_true(record.final_loss == step.loss);
    assert_memory_equal(&record.final_score, score, sizeof *score);
    record_close(&record);
    char *wanted = memory_format("%s\n%s\n", line, evaluation);
    assert_true(pread(fileno(said), text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, wanted);
    free(wanted);
    fclose(said);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(strchr(text, '\n') + 1, row);
    free(path);
}

static void a_step_is_written(void **state) {
    char phases[400] = "";
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        sprintf(phases + strlen(phases), ",%d.000500", (int)phase);
    TrainConfig config = {.out = *state};
    char *row =
        memory_format("7,2,0.123456789,1.23456789,12.500250,5119.898%s,4096,1.500000,nan,nan,"
                      "nan,nan\n",
                      phases);
    assert_written(state, &config, &SCORE_NONE,
                   "step=7 epoch=2 loss=1.234568 lr=0.123457 step_ms=12.500 samples_per_s=5120",
                   row, "epoch=2 test_loss=0.500000");
    free(row);
    config.amp = PRECISION_F16;
    config.link = "10gbe";
    const Score all = {.accuracy = 0.98765432, .mean_iou = 0.25, .bits = 3};
    row = memory_format(
        "7,2,0.123456789,1.23456789,12.500250,5119.898%s,4096,1.500000,0.98765432,0.25,"
        "8,3,emulated\n",
        phases);
    assert_written(
        state, &config, &all,
        "step=7 epoch=2 loss=1.234568 accuracy=0.9877 miou=0.2500 perplexity=8 bits=3.0000 "
        "lr=0.123457 step_ms=12.500 samples_per_s=5120 scale=4096 link=emulated",
        row,
        "epoch=2 test_loss=0.500000 test_accuracy=0.9877 test_miou=0.2500 "
        "test_perplexity=8 test_bits=3.0000");
    free(row);
}

static void gradients_are_wanted_of_some_steps(void **state) {
    (void)state;
    static const struct {
        const char *file, *steps;
        uint64_t step;
        bool wanted;
    } cases[] = {{"g", "0", 0, true},       {"g", "0", 1, false},      {NULL, "0", 0, false},
                 {"g", "1,20,3", 1, true},  {"g", "1,20,3", 20, true}, {"g", "1,20,3", 3, true},
                 {"g", "1,20,3", 2, false}, {"g", "1,20,3", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const TrainConfig config = {.dump_grads = cases[i].file, .dump_step = cases[i].steps};
        const Record record = {.config = &config};
        assert_int_equal(record_wants_gradients(&record, cases[i].step), cases[i].wanted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_times_have_a_limit),
        cmocka_unit_test_setup_teardown(later_rows_are_dropped, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(a_step_is_written, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(rows_in_a_folder_are_an_error, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(gradients_are_wanted_of_some_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
