/* test_record.c: which step times are kept, which rows of steps.csv a resumed run keeps, of which
 * steps gradients are wanted.
 */
#include "tests/rigs/check.h"

#include <stdlib.h>
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

// The rows of a steps.csv that a run which continues at `first` begins with.
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

static void later_rows_are_dropped(void **state) {
    static const char rows[] = "step,loss\n0,a\n5,b\n9,c\n10,d\n";
    assert_kept(state, rows, 10, "step,loss\n0,a\n5,b\n9,c\n");
    assert_kept(state, rows, 9, "step,loss\n0,a\n5,b\n");
    assert_kept(state, rows, 99, rows);
    assert_kept(state, "step,loss\n0,a\n5,b", 99, "step,loss\n0,a\n"); // killed in its last row
    assert_kept(state, rows, 0, "");                                   // a run from the start
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(step_times_have_a_limit),
                                       cmocka_unit_test_setup_teardown(later_rows_are_dropped,
                                                                       temp_folder_make,
                                                                       temp_folder_remove),
                                       cmocka_unit_test(gradients_are_wanted_of_some_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
