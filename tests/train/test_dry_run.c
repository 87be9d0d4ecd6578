/* test_dry_run.c: --dry-run prints a run's bytes by kind; its peak is that of a real run. */
#include "tests/rigs/check.h"

#include <unistd.h>

#include "common/base/memory.h"
#include "common/train/setup.h"
#include "common/train/trainer.h"

static bool fails; // a step's reduction

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    (void)self, (void)tape;
    return fails ? error_set(err, STATUS_FAILED, "rank 1 is gone") : 0;
}

// Runs the trainer and writes its standard output to text[size]. Returns its status.
static int run(TrainConfig config, char *text, size_t size, size_t *peak) {
    Options options = {.program = "test_dry_run"};
    Error err = {0};
    train_options(&options, &config);
    DataSource *data = must_get(train_open_data(&config, &err), &err);
    Device *device = must_get(device_open(config.dry_run ? "dry-cpu:0" : "cpu:0", &err), &err);
    Module *model = must_get(train_create_model(&config, data, device, 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config.global_batch, true, false, 0, &err), &err);
    Job *job = job_single(strategy_single(model, device, sampler));
    job->strategy->finish_backward = finish_backward;
    FILE *out = tmpfile();
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    assert_true(out && dup2(fileno(out), STDOUT_FILENO) >= 0);
    const int status = trainer_run(&config, &options, data, job, &err);
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    const ssize_t length = pread(fileno(out), text, size - 1, 0);
    assert_true(length >= 0);
    text[length] = '\0';
    fclose(out);
    *peak = device->peak_bytes;
    job->close(job);
    dataset_close(data);
    return status;
}

static TrainConfig toy(void) { // 10 x 10 and 10 x 5 weights, 10 and 5 biases
    TrainConfig config = train_config_default();
    config.model = "toy";
    config.data = "synthetic:10:5@40";
    config.global_batch = 20;
    config.no_eval = true;
    config.steps = 3;
    return config;
}

static void the_kinds_add_up_to_the_peak(void **state) {
    (void)state;
    static const struct {
        OptimizerKind optimizer;
        size_t global_batch, parts, optimizer_bytes;
    } cases[] = {{OPTIMIZER_SGD, 20, 1, 4 * 165},
                 {OPTIMIZER_ADAM, 20, 2, 2 * 4 * 165},
                 {OPTIMIZER_ADAMW, 40, 1, 2 * 4 * 165}}; // one batch
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000], trained[1000];
        size_t peak, wanted_peak, batch = cases[i].global_batch;
        TrainConfig config = toy();
        config.optimizer = cases[i].optimizer;
        config.global_batch = batch;
        config.accumulate_steps = cases[i].parts;
        assert_int_equal(run(config, trained, sizeof trained, &wanted_peak), 0);
        config.dry_run = true;
        assert_int_equal(run(config, text, sizeof text, &peak), 0);
        assert_int_equal(peak, wanted_peak);
        const size_t weights = (size_t)4 * 165, samples = batch * 4 * (10 + 5);
        const size_t logits = batch * 5 * 4, optimizer = cases[i].optimizer_bytes;
        char *wanted = memory_format(
            "weights_bytes=%zu\ngradients_bytes=%zu\noptimizer_bytes=%zu\nbatch_bytes=%zu\n"
            "logits_bytes=%zu\nactivations_bytes=%zu\npeak_bytes=%zu (%.2f GiB on dry-cpu:0)\n",
            weights, weights, optimizer, samples, logits,
            peak - 2 * weights - optimizer - samples - logits, peak, (double)peak / 1073741824);
        assert_string_equal(text, wanted);
        free(wanted);
    }
}

static void a_peak_has_its_gibibytes(void **state) {
    (void)state;
    char text[1000], wanted[40];
    size_t peak;
    TrainConfig config = toy();
    config.dry_run = true;
    config.model = "mlp";
    config.hidden = "8192,8192";
    assert_int_equal(run(config, text, sizeof text, &peak), 0);
    snprintf(wanted, sizeof wanted, " (%.2f GiB on dry-cpu:0)\n", (double)peak / 1073741824);
    assert_non_null(strstr(text, wanted));
    assert_true(peak > (size_t)3 * 4 * 8192 * 8192); // weights, gradients, velocity
}

static void a_failed_step_prints_nothing(void **state) {
    (void)state;
    char text[1000];
    size_t peak;
    TrainConfig config = toy();
    config.dry_run = true;
    fails = true;
    for (config.accumulate_steps = 1; config.accumulate_steps <= 2; config.accumulate_steps++) {
        assert_int_equal(run(config, text, sizeof text, &peak), -1);
        assert_string_equal(text, "");
    }
    fails = false;
    config = toy();
    config.dry_run = true;
    config.accumulate_steps = 21; // of 20 samples: refused before the first step
    assert_int_equal(run(config, text, sizeof text, &peak), -1);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_kinds_add_up_to_the_peak),
                                       cmocka_unit_test(a_failed_step_prints_nothing),
                                       cmocka_unit_test(a_peak_has_its_gibibytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
