/* test_run_failures.c: a run ends with the error of the first file that it cannot write, whichever
 * it is. file_commit is wrapped: its n-th call fails, for every n.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/temp_folder.h"

#include "common/base/file.h"
#include "common/train/setup.h"
#include "common/train/trainer.h"

static int calls, failing; // of file_commit; the number of the failing one

int __real_file_commit(AtomicFile *file, Error *err),
    __wrap_file_commit(AtomicFile *file, Error *err);

int __wrap_file_commit(AtomicFile *file, Error *err) {
    if (++calls != failing) return __real_file_commit(file, err);
    file_abandon(file);
    return error_set(err, STATUS_FAILED, "commit %d fails", failing);
}

int __wrap_fsync(int fd); // hundreds of calls

int __wrap_fsync(int fd) {
    return fd >= 0 ? 0 : -1;
}

static int run(const TrainConfig *config, Error *err) {
    TrainConfig own = *config;
    Options options = {.program = "test_run_failures"};
    train_options(&options, &own);
    DataSource *data = must_get(train_open_data(&own, err), err);
    Device *device = must_get(device_open("cpu:0", err), err);
    Module *model = must_get(train_create_model(&own, data, device, 0, err), err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, own.global_batch, true, false, 0, err), err);
    Job *job = job_single(strategy_single(model, device, sampler));
    int status = trainer_run(&own, &options, data, job, err);
    job->close(job);
    dataset_close(data);
    return status;
}

// Two epochs of two steps: config.json, gradients, checkpoints within and after epochs, pictures,
// the summary, a trace.
static void each_file_that_fails_ends_the_run(void **state) {
    char *out = temp_folder_path(state, "out"), *trace = temp_folder_path(state, "trace");
    char *gradients = temp_folder_path(state, "gradients");
    TrainConfig config = train_config_default();
    config.model = "segnet";
    config.data = "shapes:8x8@10";
    config.global_batch = 5;
    config.epochs = 2;
    config.out = out;
    config.trace = trace;
    config.dump_grads = gradients;
    config.dump_images = config.keep_epochs = config.save_every = 1;
    calls = failing = 0;
    Error err = {0};
    CHECK_OK(run(&config, &err) == 0, err);
    const int all = calls;
    assert_in_range(all, 10, 100);
    for (failing = 1; failing <= all; failing++) {
        char says[40];
        calls = 0;
        err = (Error){0};
        snprintf(says, sizeof says, "commit %d fails", failing);
        if (run(&config, &err) == 0) fail_msg("%s, and the run continues", says);
        check_message(&err, says);
        assert_int_equal(calls, failing);
    }
    free(out);
    free(trace);
    free(gradients);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        each_file_that_fails_ends_the_run, temp_folder_make, temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
