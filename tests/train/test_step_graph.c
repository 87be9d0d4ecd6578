/* test_step_graph.c: the checks around a replayed step, one by one: whether another process has
 * failed, before each replay and after each value read back; whether all processes have arrived,
 * before a checkpoint; whether the step can be recorded at all. The other processes are simulated
 * by a strategy with scripted answers.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/temp_folder.h"

#include <unistd.h>

#include "common/base/profile.h"
#include "common/device/device_backend.h"
#include "common/train/pending_rows.h"
#include "common/train/setup.h"
#include "common/train/step_graph.h"
#include "common/train/trainer.h"

enum { WARM = 4, BATCH = 20 }; // WARM: eager steps before the recording

static const char FAILED[] = "rank 1: the network is gone";

// Wraps the device's graph functions and answers for the other processes.
typedef struct Script {
    DeviceBackend backend;    // first field, so that a Device's backend points to the Script
    const DeviceBackend *own; // the device's original backend
    JobWatch watch;
    bool failed; // another process has failed
    bool saving; // the trainer has announced a checkpoint
    int launches, closed_graphs;
} Script;

static Script *script_of(const JobWatch *watch) {
    return (Script *)((char *)watch - offsetof(Script, watch));
}

static void note_phase(const JobWatch *self, const char *phase, uint64_t step) {
    (void)step;
    script_of(self)->saving = strcmp(phase, "checkpoint") == 0;
}

static int answer(const JobWatch *self, Error *err) {
    return script_of(self)->failed ? error_set(err, STATUS_FAILED, "%s", FAILED) : 0;
}

static void launch(Device *device, void *graph) {
    Script *script = (Script *)device->backend;
    script->launches++;
    script->own->graph_launch(device, graph);
}

static void close_graph(Device *device, void *graph) {
    Script *script = (Script *)device->backend;
    script->closed_graphs++;
    script->own->graph_close(device, graph);
}

static void follow_script(Job *job, Script *script) {
    Device *device = job->strategy->device;
    *script = (Script){.backend = *device->backend,
                       .own = device->backend,
                       .watch = {note_phase, answer, job_watch_none.give_up}};
    script->backend.graph_launch = launch;
    script->backend.graph_close = close_graph;
    device->backend = &script->backend;
    job->watch = &script->watch;
}

// ---- parts of a trainer -----------------------------------------------------------------------

typedef struct Rig {
    TrainConfig config;
    Script script;
    DataSource *data;
    Job *job;
    Loader *loader;
    Optimizer *optimizer;
    Profile profile;
    Step *step;
} Rig;

static void open_job(Rig *rig) {
    Error err = {0};
    rig->config = train_config_default();
    rig->config.data = "synthetic:10:5@400";
    rig->config.global_batch = BATCH;
    rig->config.log_every = 1000;
    rig->config.no_eval = true;
    rig->data = must_get(train_open_data(&rig->config, &err), &err);
    Device *device = must_get(device_open("cuda", &err), &err);
    Module *model = must_get(train_create_model(&rig->config, rig->data, device, 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(rig->data->train.count, BATCH, true, false, 0, &err), &err);
    rig->job = job_single(strategy_single(model, device, sampler));
    follow_script(rig->job, &rig->script);
}

static void close_job(Rig *rig) {
    rig->job->close(rig->job);
    dataset_close(rig->data);
}

static void open_step(Rig *rig) {
    open_job(rig);
    const OptimizerConfig optimizer = train_optimizer(&rig->config);
    rig->loader = loader_create(&rig->data->train, rig->job->strategy->sampler, NULL, 2,
                                rig->job->strategy->device);
    rig->optimizer = optimizer_create(rig->job->strategy->model, &optimizer);
    rig->step = step_open(&rig->config, rig->job->strategy, rig->optimizer, &rig->profile,
                          &rig->data->train, loader_capacity(rig->loader));
    loader_start(rig->loader, 0, 0);
}

static void close_step(Rig *rig) {
    step_close(rig->step);
    loader_close(rig->loader);
    optimizer_close(rig->optimizer);
    close_job(rig);
}

static void send_batch(const Rig *rig) {
    batch_input_wait(rig->step->input);
    step_send_batch(rig->step, loader_next(rig->loader));
}

// One step, as the trainer runs it with --cuda-graph.
static int graph_step(const Rig *rig, StepGraph *graph, Error *err) {
    Tape *tape = step_graph_tape(graph);
    return tape ? train_step(rig->step, tape, 0.01, err) : step_graph_replay(graph, 0.01, err);
}

static void take_steps(const Rig *rig, StepGraph *graph, int count) {
    Error err = {0};
    for (int i = 0; i < count; i++) {
        send_batch(rig);
        CHECK_OK(graph_step(rig, graph, &err) == 0, err);
    }
}

// ---- checks -----------------------------------------------------------------------------------

static void nothing_is_replayed_after_a_failure(void **state) {
    (void)state;
    Rig rig = {0};
    Error err = {0};
    open_step(&rig);
    StepGraph *graph = step_graph_open(rig.step, rig.job);
    take_steps(&rig, graph, WARM + 3);
    assert_int_equal(rig.script.launches, 3);
    assert_int_equal(rig.script.closed_graphs, 0);
    rig.script.failed = true;
    send_batch(&rig);
    assert_int_equal(graph_step(&rig, graph, &err), -1);
    assert_string_equal(err.message, FAILED);
    assert_int_equal(rig.script.launches, 3);
    assert_int_equal(rig.script.closed_graphs,
                     BATCH_SLOTS); // a communicator that ends waits for them
    step_graph_close(graph);
    assert_int_equal(rig.script.closed_graphs, BATCH_SLOTS);
    close_step(&rig);
}

static void no_number_counts_after_a_failure(void **state) {
    (void)state;
    Rig rig = {0};
    Error err = {0};
    open_step(&rig);
    Record record = {.job = rig.job};
    PendingRows rows = pending_rows_open(rig.step, &record, 100);
    for (uint64_t i = 1; i <= 3; i++) {
        const StepRecord now = {.step = i};
        send_batch(&rig);
        CHECK_OK(train_step(rig.step, rig.step->tape, 0.01, &err) == 0, err);
        rig.script.failed = i == 3;
        int failed = pending_rows_add(&rows, &now, &rig.profile, &err);
        assert_int_equal(failed, rig.script.failed ? -1 : 0);
    }
    assert_string_equal(err.message, FAILED);
    pending_rows_close(&rows);
    close_step(&rig);
}

static void *sum_while_all_are_there(Strategy *self, double *values, size_t count, Error *err) {
    (void)count;
    if (!((const Script *)self->state)->saving) return values;
    error_set(err, STATUS_FAILED, "%s", FAILED);
    return NULL;
}

static void nothing_is_saved_before_all_have_come(void **state) {
    char *path = temp_folder_path(state, "last");
    Rig rig = {0};
    Options options = {.program = "test_step_graph"};
    Error err = {0};
    open_job(&rig);
    train_options(&options, &rig.config);
    rig.config.save = path;
    rig.config.steps = 2;
    rig.job->strategy->sum_start = sum_while_all_are_there;
    rig.job->strategy->state = &rig.script;
    assert_int_equal(trainer_run(&rig.config, &options, rig.data, rig.job, &err), -1);
    assert_string_equal(err.message, FAILED);
    assert_int_equal(access(path, F_OK), -1);
    close_job(&rig);
    free(path);
}

static const char *late_hook(const Job *self) {
    (void)self;
    return "a late hook";
}

static void what_can_be_recorded_is_asked_then(void **state) {
    (void)state;
    Rig rig = {0};
    Error err = {0};
    open_step(&rig);
    StepGraph *graph = step_graph_open(rig.step, rig.job);
    take_steps(&rig, graph, WARM);
    rig.job->unrecordable = late_hook;
    send_batch(&rig);
    assert_int_equal(graph_step(&rig, graph, &err), -1);
    check_message(&err, "--cuda-graph: a late hook decides on the host in every step");
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(rig.script.launches, 0);
    step_graph_close(graph);
    close_step(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_replayed_after_a_failure),
        cmocka_unit_test(no_number_counts_after_a_failure),
        cmocka_unit_test_setup_teardown(nothing_is_saved_before_all_have_come, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(what_can_be_recorded_is_asked_then),
    };
    if (device_available("cuda") > 0) return cmocka_run_group_tests(tests, NULL, NULL);
    printf("no GPU here\n");
    return STATUS_SKIPPED;
}
