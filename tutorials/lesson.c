/* lesson.c: options, batches, reports and the file of weights. */
#include "tutorials/lesson.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/tensor_files/safetensors.h"

enum { LOADER_DEPTH = 2, EVALUATION_BATCH = 256 };

// ---- options ----------------------------------------------------------------------------------

// Those of the trainers' shared options that the programs here know. The others, as those for
// precision, GPUs or schedules of checkpoints, are left to the trainers.
static const char *const KNOWN[] = {
    "model", "hidden",       "data",         "no-shuffle", "global-batch", "seed",     "epochs",
    "steps", "optimizer",    "lr",           "momentum",   "nesterov",     "schedule", "log-every",
    "save",  "weight-decay", "warmup-steps", "save-init",  "load-init",    "no-eval"};

static bool is_known(const Option *option) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (option->type == OPTION_TITLE || strcmp(option->name, KNOWN[i]) == 0) return true;
    return false;
}

static void keep_known(Options *options) {
    size_t kept = 0;
    for (size_t i = 0; i < options->count; i++)
        if (is_known(&options->table[i])) options->table[kept++] = options->table[i];
    options->count = kept;
}

void lesson_options(Lesson *lesson, const char *program, const char *summary, const char *breaks) {
    *lesson = (Lesson){.config = train_config_default(), .broken = "none"};
    lesson->options = (Options){.program = program, .summary = summary};
    train_options(&lesson->options, &lesson->config);
    keep_known(&lesson->options);
    options_add_title(&lesson->options, "This step");
    if (strcmp(breaks, "none") != 0)
        options_add_choice(&lesson->options, "break", &lesson->broken, breaks,
                           "make this mistake, to see what it does");
}

bool lesson_breaks(const Lesson *lesson, const char *name) {
    return strcmp(lesson->broken, name) == 0;
}

// ---- a run ------------------------------------------------------------------------------------

void lesson_begin(Lesson *lesson, int argc, char **argv) {
    Error err = {0};
    const TrainConfig *config = &lesson->config;
    if (options_parse(&lesson->options, argc, argv, &err) != 0) error_exit(&err);
    lesson->data = train_open_data(config, &err);
    if (!lesson->data) error_exit(&err);
    if (lesson->data->train.dense) {
        error_set(&err, STATUS_USAGE, "--model %s: the tutorials know no labels of pixels",
                  config->model);
        error_exit(&err);
    }
    lesson->host = device_open("cpu:0", &err);
    if (!lesson->host) error_exit(&err);
    Sampler *whole = sampler_whole(lesson->data->train.count, config->global_batch,
                                   !config->no_shuffle, false, config->seed, &err);
    if (!whole) error_exit(&err);
    lesson_use_sampler(lesson, whole);
}

void lesson_use_sampler(Lesson *lesson, Sampler *sampler) {
    const TrainConfig *config = &lesson->config;
    loader_close(lesson->loader);
    sampler_close(lesson->sampler);
    lesson->sampler = sampler;
    lesson->loader = loader_create(&lesson->data->train, sampler, NULL, LOADER_DEPTH, lesson->host);
    lesson->steps = config->steps ? config->steps : config->epochs * sampler->batch_count;
    lesson->schedule = config->schedule;
    lesson->schedule.total_steps = lesson->steps;
}

const Batch *lesson_next(Lesson *lesson) {
    const size_t batches = lesson->sampler->batch_count;
    if (lesson->step == 0) lesson->begin_ns = clock_ns();
    if (lesson->step == lesson->steps) return NULL;
    if (lesson->step % batches == 0) loader_start(lesson->loader, lesson->step / batches, 0);
    lesson->step++;
    return loader_next(lesson->loader);
}

double lesson_add_noise(const Lesson *lesson, const Batch *batch, double deviation, uint64_t seed) {
    const size_t count = batch->count * dataset_sample_size(batch->set);
    const uint64_t first = lesson->step * count;
    for (size_t i = 0; i < count; i++)
        batch->samples[i] += (float)deviation * rng_normal(seed, RNG_STREAM_NOISE, first + i);
    return (double)rng_normal(seed, RNG_STREAM_NOISE, first);
}

void lesson_skip(Lesson *lesson, size_t steps) {
    const size_t batches = lesson->sampler->batch_count;
    if (steps == 0) return;
    CHECK(lesson->step == 0 && steps <= lesson->steps, "%zu steps cannot be skipped", steps);
    lesson->step = steps;
    if (steps % batches != 0) loader_start(lesson->loader, steps / batches, steps % batches);
    if (!lesson->quiet) printf("resumes at step=%zu\n", steps);
}

double lesson_lr(const Lesson *lesson) {
    return schedule_lr(&lesson->schedule, lesson->step - 1);
}

bool lesson_is_logged(const Lesson *lesson) {
    return (lesson->step - 1) % lesson->config.log_every == 0 || lesson->step == lesson->steps;
}

void lesson_report(Lesson *lesson, double loss) {
    if (lesson->quiet || !lesson_is_logged(lesson)) return;
    printf("step=%zu loss=%.4f\n", lesson->step - 1, loss);
    fflush(stdout);
}

// Over the whole test set. Regression has no accuracy: then nothing is printed.
static void print_accuracy(const Lesson *lesson, Module *model) {
    Error err = {0};
    const Dataset *set = &lesson->data->test;
    if (!set->labels || set->count == 0) return;
    Sampler *sampler = sampler_evaluation(set->count, EVALUATION_BATCH, 1, 0);
    Loader *loader = loader_create(set, sampler, NULL, 0, lesson->host);
    Tape *tape = tape_create(lesson->host, NULL);
    tape->recording = tape->training = false;
    size_t correct = 0;
    loader_start(loader, 0, 0);
    for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
        Rows rows = lesson_rows(tape, batch, 0, batch->count);
        Tensor *outputs = module_forward(model, tape, rows.samples);
        if (tape_error(tape, &err) != 0) error_exit(&err);
        for (size_t row = 0; row < batch->count; row++)
            correct += lesson_answer(outputs, row) == (size_t)batch->labels[row];
    }
    printf("test_accuracy=%.4f\n", (double)correct / (double)set->count);
    tape_close(tape);
    loader_close(loader);
    sampler_close(sampler);
}

void lesson_end(Lesson *lesson, Module *model) {
    Error err = {0};
    const TrainConfig *config = &lesson->config;
    if (!lesson->quiet) {
        if (config->save && safetensors_save_module(config->save, model, NULL, 0, &err) != 0)
            error_exit(&err);
        if (!config->no_eval) print_accuracy(lesson, model);
    }
    loader_close(lesson->loader);
    sampler_close(lesson->sampler);
    device_close(lesson->host);
    dataset_close(lesson->data);
}

void lesson_need(bool fine, const char *name, const char *what) {
    Error err = {0};
    if (fine) return;
    error_set(&err, STATUS_FAILED, "%s %s", name, what);
    error_exit(&err);
}

Device *lesson_device(int index) {
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", index);
    Device *device = device_open(name, &err);
    if (!device) error_exit(&err);
    return device;
}

void lesson_print_bytes(const Device *device) {
    printf("device=%s received_bytes=%zu peak_bytes=%zu\n", device->name,
           (size_t)device->copied_bytes, device->peak_bytes);
}

// ---- tensors ----------------------------------------------------------------------------------

Rows lesson_rows(Tape *tape, const Batch *batch, size_t begin, size_t end) {
    const Dataset *set = batch->set;
    size_t count = end - begin;
    Rows rows = {.count = count};
    rows.samples = tape_input(tape, DTYPE_F32, 4,
                              (size_t[]){count, set->shape[0], set->shape[1], set->shape[2]},
                              batch->samples + begin * dataset_sample_size(set));
    rows.target = batch->labels
                      ? tape_input(tape, DTYPE_I64, 1, &count, batch->labels + begin)
                      : tape_input(tape, DTYPE_F32, 2, (size_t[]){count, set->target_size},
                                   batch->targets + begin * set->target_size);
    return rows;
}

Tensor *lesson_loss(Tape *tape, Tensor *outputs, Tensor *target, size_t divisor) {
    if (!outputs) return NULL;
    if (target->dtype == DTYPE_I64) return op_cross_entropy(tape, outputs, target, (double)divisor);
    return op_squared_error(tape, outputs, target, (double)(divisor * target->shape[1]));
}

size_t lesson_answer(const Tensor *outputs, size_t row) {
    size_t classes = outputs->shape[1], best = 0;
    const float *output = tensor_f32(outputs) + row * classes;
    for (size_t c = 1; c < classes; c++)
        if (output[c] > output[best]) best = c;
    return best;
}

Optimizer *lesson_optimizer(const Lesson *lesson, Module *model) {
    const TrainConfig *config = &lesson->config;
    OptimizerConfig wanted = {.kind = config->optimizer,
                              .momentum = config->momentum,
                              .nesterov = config->nesterov,
                              .weight_decay = config->weight_decay,
                              .beta1 = config->betas[0],
                              .beta2 = config->betas[1],
                              .eps = config->eps};
    return optimizer_create(model, &wanted);
}
