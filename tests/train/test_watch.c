/* test_watch.c: a run's reports to the launcher's watch (JobWatch): each phase with its step, and a
 * failure, its own or another process's; a run ends with the first failure.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/temp_folder.h"

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/nn/tape.h"
#include "common/train/setup.h"
#include "common/train/trainer.h"

static char told[2048];    // reported phases: "train 0, train 1, checkpoint 2"
static const char *failed; // the phase in which another process fails; NULL: none
static uint64_t failed_at, now;

static void note_phase(const JobWatch *self, const char *phase, uint64_t step) {
    (void)self;
    now = step;
    format_append(told, sizeof told, "%s%s %ju", *told ? ", " : "", phase, (uintmax_t)step);
}

static int check_failure(const JobWatch *self, Error *err) {
    (void)self;
    return failed && now >= failed_at ? error_set(err, STATUS_FAILED, "%s", failed) : 0;
}

static void note_end(const JobWatch *self, const Error *cause) {
    (void)self;
    format_append(told, sizeof told, "%sgave up: %s", *told ? ", " : "", cause->message);
}

static const JobWatch watch = {.enter = note_phase, .check = check_failure, .give_up = note_end};

// ---- failing calls of the strategy and the job -------------------------------------------------

static int calls, failing; // calls so far; number of the failing call, from 1 (0: none)

static int may_fail(Error *err) {
    return ++calls == failing ? error_set(err, STATUS_FAILED, "call %d failed", calls) : 0;
}

static void *sum_start(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)count;
    return may_fail(err) != 0 ? NULL : values;
}

static int sum_wait(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum;
    return may_fail(err);
}

static char order[400]; // of what a step does

static void note_order(const char *what) {
    if (strlen(order) < 300) format_append(order, sizeof order, "%s ", what);
}

static void hold_gradients(Strategy *self, bool hold) {
    (void)self;
    note_order(hold ? "hold" : "go");
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    (void)self, (void)tape;
    note_order("finish");
    return may_fail(err);
}

static int sync_buffers(Strategy *self, Error *err) {
    (void)self;
    return may_fail(err);
}

static int save_state(Job *self, const Optimizer *optimizer, SafeTensors *state, Error *err) {
    (void)self, (void)optimizer, (void)state;
    return may_fail(err);
}

static int gather_gradients(Job *self, SafeTensors *gradients, Error *err) {
    (void)self, (void)gradients;
    return may_fail(err);
}

// The model in a module whose forward is one of the calls.
static Tensor *forward_or_fail(Module *self, Tape *tape, Tensor *x) {
    Error err = {0};
    note_order("forward");
    if (may_fail(&err) != 0) return tape_fail(tape, "forward", "%s", err.message);
    return module_forward(self->state, tape, x);
}

static void count_calls(Job *job, Module *wrapper) {
    calls = 0;
    wrapper->state = job->strategy->model;
    job->strategy->module = job->strategy->evaluation_module = wrapper;
    job->strategy->sum_start = sum_start;
    job->strategy->sum_wait = sum_wait;
    job->strategy->hold_gradients = hold_gradients;
    job->strategy->finish_backward = finish_backward;
    job->strategy->sync_buffers = sync_buffers;
    job->save_state = save_state;
    job->gather_gradients = gather_gradients;
}

// ---- runs --------------------------------------------------------------------------------------

static bool collective;  // a forward needs all ranks, which have equally many batches
static bool global_mean; // of the loss
static int devices = 1;  // of the job, at most 4: one device, counted so often

// Runs the trainer. Returns its status, with the error in message[200].
static int run(const TrainConfig *config, char *message) {
    TrainConfig own = *config;
    Options options = {.program = "test_watch"};
    Error err = {0};
    told[0] = '\0';
    train_options(&options, &own);
    DataSource *data = must_get(train_open_data(&own, &err), &err);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    Module *model = must_get(train_create_model(&own, data, device, 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, own.global_batch, true, false, 0, &err), &err);
    Job *job = job_single(strategy_single(model, device, sampler));
    job->watch = &watch;
    Device *all[] = {device, device, device, device};
    job->all = all;
    job->devices = job->all_count = devices;
    job->strategy->collective_forward = collective;
    job->strategy->global_mean = global_mean;
    Module *wrapper = module_create("FailingWrapper", forward_or_fail);
    count_calls(job, wrapper);
    const int status = trainer_run(&own, &options, data, job, &err);
    snprintf(message, 200, "%.199s", err.message);
    module_close(wrapper);
    job->close(job);
    dataset_close(data);
    return status;
}

static TrainConfig small(void) {
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@40";
    config.global_batch = 20; // two steps an epoch
    config.epochs = 2;
    return config;
}

static void each_phase_is_told(void **state) {
    char message[200], *save = temp_folder_path(state, "save");
    TrainConfig config = small();
    assert_int_equal(run(&config, message), 0);
    assert_string_equal(told, "train 0, train 1, evaluate 2, evaluate 2, train 2, train 3, "
                              "evaluate 4, evaluate 4, shutdown 4");
    config.no_eval = true;
    config.save = save;
    config.save_every = 3;
    assert_int_equal(run(&config, message), 0);
    assert_string_equal(told, "train 0, train 1, checkpoint 2, train 2, checkpoint 3, train 3, "
                              "checkpoint 4, shutdown 4");
    TrainConfig text = train_config_default();
    text.model = "gpt";
    text.gpt = (GptSizes){.layers = 1, .heads = 1, .embedding = 8, .context = 8};
    text.steps = 1;
    text.sample = 2;
    text.no_eval = true;
    assert_int_equal(run(&text, message), 0);
    assert_string_equal(told, "train 0, sample 1, sample 1, shutdown 1");
    free(save);
}

// An evaluation in batches of 256 runs no empty batch; if a forward needs all ranks, neither.
static void evaluations_have_no_empty_batch(void **state) {
    (void)state;
    static const struct {
        const char *data; // a quarter is the test set
        int batches;
    } cases[] = {
        {"synthetic:10:5@1020", 1}, {"synthetic:10:5@1024", 1}, {"synthetic:10:5@1028", 2}};
    for (int i = 0; i < 6; i++) {
        char message[200];
        TrainConfig config = small();
        config.data = cases[i / 2].data;
        config.steps = 1;
        collective = i % 2;
        assert_int_equal(run(&config, message), 0);
        assert_string_equal(told, cases[i / 2].batches == 1
                                      ? "train 0, evaluate 1, evaluate 1, shutdown 1"
                                      : "train 0, evaluate 1, evaluate 1, evaluate 1, shutdown 1");
    }
    collective = false;
}

// Of text a batch has as many samples as a device has in training, and at least one.
static void evaluations_of_text_are_no_larger_than_training(void **state) {
    static const struct {
        size_t global_batch, size;
        int devices;
    } cases[] = {{1, 1, 1}, {6, 6, 1}, {7, 3, 2}, {8, 2, 4}, {3, 1, 4}};
    char message[200], *path = temp_folder_path(state, "some.txt");
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 4000; i++) fputc('a' + i * i % 7, file);
    fclose(file);
    TrainConfig text = train_config_default();
    text.model = "gpt";
    text.gpt = (GptSizes){.layers = 1, .heads = 1, .embedding = 8, .context = 8};
    text.data = path;
    text.steps = 1;
    Error err = {0};
    DataSource *data = must_get(train_open_data(&text, &err), &err);
    const size_t count = data->test.count;
    dataset_close(data);
    assert_in_range(count, 10, 100);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text.global_batch = cases[i].global_batch;
        devices = cases[i].devices;
        assert_int_equal(run(&text, message), 0);
        size_t batches = 0;
        for (const char *at = told; (at = strstr(at, "evaluate ")); at++) batches++;
        assert_int_equal(batches - 1, (count + cases[i].size - 1) / cases[i].size);
    }
    devices = 1;
    free(path);
}

// In a step of three micro-batches only the last backward reduces.
static void parts_hold_gradients(void **state) {
    (void)state;
    char message[200];
    TrainConfig config = small();
    config.steps = 1;
    config.no_eval = true;
    config.accumulate_steps = 3;
    order[0] = '\0';
    assert_int_equal(run(&config, message), 0);
    assert_string_equal(order, "hold forward go hold forward go go forward finish go ");
}

static void failures_are_told_once(void **state) {
    (void)state;
    char message[200];
    TrainConfig config = small();
    config.no_eval = true;
    failed = "rank 1 has gone";
    failed_at = 1;
    assert_int_equal(run(&config, message), -1);
    failed = NULL;
    assert_string_equal(message, "rank 1 has gone");
    assert_string_equal(told, "train 0, train 1, gave up: rank 1 has gone");
    config.schedule.lr = 1e30;
    assert_int_equal(run(&config, message), -1);
    assert_non_null(strstr(message, "training has diverged"));
    assert_non_null(strstr(told, "gave up: the loss is "));
}

// For each call: if it fails, the run ends with its error, and later calls only wait for sums in
// flight.
static void assert_any_failure_ends(const TrainConfig *config) {
    char message[200];
    for (failing = 1;; failing++) {
        const int status = run(config, message);
        if (calls < failing) {
            assert_int_equal(status, 0);
            break;
        }
        char *wanted = memory_format("call %d failed", failing), *end = strstr(told, "gave up: ");
        assert_int_equal(status, -1);
        assert_non_null(strstr(message, wanted));
        assert_non_null(end);
        assert_string_equal(end + strlen("gave up: "), message);
        assert_in_range(calls, failing, failing + 1);
        free(wanted);
    }
    assert_in_range(failing, 30, 100);
    failing = 0;
}

static void any_failed_call_ends_the_run(void **state) {
    char *grads = temp_folder_path(state, "grads");
    TrainConfig config = small();
    config.out = *state;
    config.dump_grads = grads;
    config.save_every = 3;
    config.log_every = 1;
    assert_any_failure_ends(&config);
    config.accumulate_steps = 2;
    assert_any_failure_ends(&config);
    config.model = "segnet"; // its loss is divided by a sum over the ranks
    config.data = "shapes:8x8@8";
    config.global_batch = 4;
    global_mean = true;
    for (config.accumulate_steps = 1; config.accumulate_steps <= 2; config.accumulate_steps++)
        assert_any_failure_ends(&config);
    global_mean = false;
    free(grads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_phase_is_told, temp_folder_make, temp_folder_remove),
        cmocka_unit_test(evaluations_have_no_empty_batch),
        cmocka_unit_test(parts_hold_gradients),
        cmocka_unit_test_setup_teardown(evaluations_of_text_are_no_larger_than_training,
                                        temp_folder_make, temp_folder_remove),
        cmocka_unit_test(failures_are_told_once),
        cmocka_unit_test_setup_teardown(any_failed_call_ends_the_run, temp_folder_make,
                                        temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
