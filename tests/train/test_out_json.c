/* test_out_json.c: the text of summary.json and of --profile's table, for runs whose times, scores
 * and bytes are given.
 */
#include "tests/rigs/check.h"

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/nn/models.h"
#include "common/train/run.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/temp_folder.h"

// ---- summary.json -------------------------------------------------------------------------------

typedef struct Case {
    Dataset test;
    Score final, tested;
    double best;
    int devices;
    Precision amp;
    size_t steps;                       // they took 9, 8, 7, ... ms
    const char *times, *bytes, *scores; // in the file
} Case;

static const Case cases[] = {
    // Up to 4 steps count, all of them: 6, 7, 8, 9 ms.
    {.test.classes = 5,
     .final.accuracy = 0.5,
     .tested.accuracy = 0.625,
     .best = 0.75,
     .devices = 3,
     .steps = 4,
     .times = "  \"samples_per_s_p50\": 6000,\n  \"step_ms_p25\": 7,\n  \"step_ms_p50\": 8,\n"
              "  \"step_ms_p75\": 8,\n  \"step_ms_p90\": 9,\n",
     .bytes = "  \"peak_bytes_device0\": 400,\n  \"peak_bytes_other\": 300,\n"
              "  \"moved_bytes_per_step\": 1500,\n",
     .scores = "  \"final_loss\": 0.25,\n  \"final_accuracy\": 0.5,\n  \"test_loss\": 0.375,\n"
               "  \"test_accuracy\": 0.625,\n  \"best_test_accuracy\": 0.75,\n"},
    // Of 5 the first two do not count: 5, 6, 7 ms.
    {.test = {.classes = 5, .dense = true},
     .final = {.accuracy = 0.5, .mean_iou = 0.125},
     .tested = {.accuracy = 0.625, .mean_iou = 0.5},
     .best = 0.75,
     .devices = 2,
     .amp = PRECISION_F16,
     .steps = 5,
     .times = "  \"samples_per_s_p50\": 8000,\n  \"step_ms_p25\": 6,\n  \"step_ms_p50\": 6,\n"
              "  \"step_ms_p75\": 7,\n  \"step_ms_p90\": 7,\n",
     .bytes = "  \"peak_bytes_device0\": 400,\n  \"peak_bytes_other\": 300,\n"
              "  \"moved_bytes_per_step\": 40,\n",
     .scores = "  \"final_loss\": 0.25,\n  \"final_accuracy\": 0.5,\n  \"test_loss\": 0.375,\n"
               "  \"test_accuracy\": 0.625,\n  \"best_test_accuracy\": null,\n"
               "  \"final_miou\": 0.125,\n  \"test_miou\": 0.5,\n  \"best_test_miou\": 0.75,\n"},
    // A run that has nothing left to train or to evaluate.
    {.test = {.classes = 5, .tokens = (uint16_t[]){0}},
     .final = {.accuracy = NAN, .bits = 3},
     .tested = {.accuracy = NAN, .bits = 2},
     .best = -INFINITY,
     .devices = 1,
     .steps = 0,
     .times = "  \"samples_per_s_p50\": null,\n  \"step_ms_p25\": null,\n"
              "  \"step_ms_p50\": null,\n  \"step_ms_p75\": null,\n  \"step_ms_p90\": null,\n",
     .bytes = "  \"peak_bytes_device0\": 400,\n  \"peak_bytes_other\": null,\n"
              "  \"moved_bytes_per_step\": 300,\n",
     .scores = "  \"final_loss\": 0.25,\n  \"final_accuracy\": null,\n  \"test_loss\": 0.375,\n"
               "  \"test_accuracy\": null,\n  \"best_test_accuracy\": null,\n"
               "  \"final_perplexity\": 8,\n  \"final_bits\": 3,\n"
               "  \"test_perplexity\": 4,\n  \"test_bits\": 2,\n"},
};

// Returns the wanted file, whose owner is the caller. Phase p took p + 1 ms in all steps.
static char *wanted_text(const Case *of) {
    const double divisor = of->steps ? (double)of->steps : 1;
    char phases[600] = "";
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        format_append(phases, sizeof phases, "%s    \"%s\": %.16g", phase ? ",\n" : "",
                      phase_name(phase), (phase + 1) / divisor);
    return memory_format("{\n  \"strategy\": \"ddp\",\n  \"backend\": \"shm\",\n"
                         "  \"model\": \"toy\",\n  \"device\": \"cpu\",\n"
                         "  \"world_size\": %d,\n  \"fake_hosts\": %s,\n"
                         "  \"global_batch\": 48,\n  \"amp\": \"%s\",\n  \"steps\": %zu,\n"
                         "  \"skipped_steps\": 2,\n  \"scale\": 4096,\n  \"parameters\": 165,\n"
                         "%s%s%s  \"phase_ms\": {\n%s\n  },\n  \"communication_ms\": %.16g\n}\n",
                         of->devices, of->devices > 2 ? "true" : "false", of->amp ? "fp16" : "none",
                         of->steps, of->times, of->bytes, of->scores, phases, 6 / divisor);
}

static void write_summary(const Case *of, Module *model, Device *device, const char *folder) {
    Error err = {0};
    uint64_t times[5];
    const TrainConfig config = {.model = "toy", .out = folder, .global_batch = 48, .amp = of->amp};
    const DataSource data = {.test = of->test};
    const double totals[] = {400, 300, 200, 6000};
    Strategy strategy = {.device = device, .model = model};
    Job job = {.name = "ddp",
               .backend = "shm",
               .strategy = &strategy,
               .devices = of->devices,
               .fake_hosts = of->devices > 2};
    Step step = {.scale = 4096, .skipped = 2};
    Run run = {.config = &config,
               .data = &data,
               .job = &job,
               .strategy = &strategy,
               .step = &step,
               .record = {.config = &config,
                          .final_loss = 0.25,
                          .final_score = of->final,
                          .step_ns = times,
                          .step_count = of->steps},
               .profile = {.steps = of->steps, .total_communication = 6000000},
               .progress.best = of->best};
    for (uint64_t i = 0; i < of->steps; i++) times[i] = 1000000 * (9 - i);
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        run.profile.total[phase] = 1000000 * ((uint64_t)phase + 1);
    const Evaluation test = {0.375, of->tested};
    CHECK_OK(out_json_summary(&run, &test, totals, &err) == 0, err);
}

static void a_summary_is_written(void **state) {
    Error err = {0};
    Device *device = must_get(device_open("cpu:0", &err), &err);
    const ModelConfig toy = {.name = "toy", .input = {10, 1, 1}, .outputs = 5, .seed = 1};
    Module *model = must_get(model_create(&toy, device, &err), &err);
    char *path = temp_folder_path(state, "summary.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096] = "", *wanted = wanted_text(&cases[i]);
        write_summary(&cases[i], model, device, *state);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_true(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        assert_string_equal(text, wanted);
        free(wanted);
    }
    free(path);
    module_close(model);
    device_close(device);
}

// ---- --profile ----------------------------------------------------------------------------------

static void *sum_start(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)count, (void)err;
    return values;
}

static int sum_wait(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum, (void)err;
    return 0;
}

// The table of four steps with 10 ms of forward, 30 ms of optimizer, and exposed_ms of collectives.
// wanted NULL: of no step, which prints nothing.
static void assert_profiled(uint64_t exposed_ms, uint64_t collective_ms, bool gathers,
                            const char *wanted) {
    Error err = {0};
    Device *device = must_get(device_open("cpu:0", &err), &err);
    const TrainConfig config = {.profile = true, .link = gathers ? "10gbe" : NULL};
    Sampler sampler = {.world = 1};
    Strategy strategy = {.device = device,
                         .sampler = &sampler,
                         .collective_forward = gathers,
                         .sum_start = sum_start,
                         .sum_wait = sum_wait};
    Job job = {.strategy = &strategy,
               .devices = 1,
               .all = &device,
               .all_count = 1,
               .watch = &job_watch_none};
    Run run = {.config = &config,
               .job = &job,
               .strategy = &strategy,
               .record = record_open(&config, &job, 4),
               .profile = {.steps = 4, .total_communication = 1000000 * collective_ms}};
    run.profile.total[PHASE_FORWARD] = 10000000;
    run.profile.total[PHASE_EXPOSED] = 1000000 * exposed_ms;
    run.profile.total[PHASE_OPTIMIZER] = 30000000;
    if (!wanted) run.profile = (Profile){0};
    Captured captured = captured_begin();
    CHECK_OK(run_end(&run, &(Evaluation){0}, &err) == 0, err);
    char *said = captured_end(&captured);
    assert_string_equal(said, wanted ? wanted : "");
    free(said);
    record_close(&run.record);
    device_close(device);
}

static void a_profile_is_a_table(void **state) {
    (void)state;
    assert_profiled(0, 0, false,
                    "phase         ms per step    share\n"
                    "forward            2.5000    25.0%\n"
                    "optimizer          7.5000    75.0%\n"
                    "step              10.0000   100.0%\n");
    assert_profiled(10, 40, false,
                    "phase         ms per step    share\n"
                    "forward            2.5000    20.0%\n"
                    "exposed            2.5000    20.0%\n"
                    "optimizer          7.5000    60.0%\n"
                    "step              12.5000   100.0%\n"
                    "all-reduces       10.0000    75.0% of it hidden behind backward\n");
    assert_profiled(20, 10, true,
                    "phase         ms per step    share  (over an emulated link)\n"
                    "forward            2.5000    16.7%\n"
                    "exposed            5.0000    33.3%\n"
                    "optimizer          7.5000    50.0%\n"
                    "step              15.0000   100.0%\n"
                    "collectives        2.5000     0.0% of it hidden behind compute\n");
    assert_profiled(0, 0, false, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_summary_is_written, temp_folder_make, temp_folder_remove),
        cmocka_unit_test(a_profile_is_a_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
