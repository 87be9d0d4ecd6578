/* dp_costs.c: step 5: the library's DataParallel, and where its time and memory go.
 *
 * What step 4 wrote out is one call now, data_parallel, and the step is step 1's again. What is new
 * are the measurements: time by phase, bytes and memory by device, the rows that each device got.
 */
#include <string.h>

#include "common/base/profile.h"
#include "dp/data_parallel.h"
#include "tutorials/lesson.h"

static const char SUMMARY[] = "Step 5: trains with the library's DataParallel, and measures.\n"
                              "Example: tutorial_05 --devices 4 --model convnet";

typedef struct Trainer {
    Device *devices[DP_MAX_DEVICES];
    int device_count;
    Module *model;   // on the first device
    Module *wrapper; // scatter, replicate, parallel apply, gather
    Tape *tape;
    Profile profile;
} Trainer;

// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = module_forward(t->wrapper, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    double value = (double)tensor_item(loss);
    tape_reset(t->tape);
    return value;
}

// How many rows each device gets of a batch, whenever that changes.
static void print_shares(const Trainer *t, size_t step, size_t rows) {
    printf("step=%zu rows=%zu shares=", step, rows);
    for (int i = 0; i < t->device_count; i++) {
        size_t begin, end;
        chunk_bounds(rows, (size_t)t->device_count, (size_t)i, &begin, &end);
        printf("%s%zu", i ? "+" : "", end - begin);
    }
    printf("\n");
}

// The share of each phase, a # for two percent.
static void print_phases(const Profile *profile) {
    uint64_t total = 0;
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) total += profile->total[phase];
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) {
        double percent = 100 * (double)profile->total[phase] / (double)total;
        if (profile->total[phase] == 0) continue;
        printf("%-10s %5.1f%% ", phase_name(phase), percent);
        for (int i = 0; i < (int)(percent / 2 + 0.5); i++) putchar('#');
        printf("\n");
    }
}

// What batch norm remembers of its inputs, if there is one.
static void print_statistics(Module *model) {
    NamedTensors buffers = module_tensors(model, MODULE_BUFFERS);
    for (size_t k = 0; k < buffers.count; k++)
        if (strcmp(buffers.items[k].name, "bn1.running_mean") == 0)
            printf("bn1.running_mean[0]=%.6f\n", (double)tensor_f32(buffers.items[k].tensor)[0]);
    named_tensors_free(&buffers);
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    for (int i = 0; i < t->device_count; i++) t->devices[i] = lesson_device(i);
    t->model = train_create_model(&lesson->config, lesson->data, t->devices[0], 0, &err);
    if (!t->model) error_exit(&err);
    t->wrapper = data_parallel(t->model, t->devices, t->device_count, &err);
    if (!t->wrapper) error_exit(&err);
    t->tape = tape_create(t->devices[0], &t->profile);
}

static void trainer_close(Trainer *t) {
    tape_close(t->tape);
    module_close(t->wrapper); // and with it the model
    for (int i = 0; i < t->device_count; i++) device_close(t->devices[i]);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.device_count = 2};
    lesson_options(&lesson, "tutorial_05", SUMMARY, "none");
    options_add_int(&lesson.options, "devices", &trainer.device_count, 1, 64,
                    "devices, a replica of the model on each");
    lesson_begin(&lesson, argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    size_t rows = 0;
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        if (batch->count != rows) print_shares(&trainer, lesson.step - 1, rows = batch->count);
        profile_begin_step(&trainer.profile);
        double loss = compute_gradients(&trainer, batch);
        Phase phase = profile_enter(&trainer.profile, PHASE_OPTIMIZER);
        optimizer_step(optimizer, lesson_lr(&lesson));
        profile_leave(&trainer.profile, phase);
        profile_end_step(&trainer.profile);
        lesson_report(&lesson, loss);
    }

    print_phases(&trainer.profile);
    for (int i = 0; i < trainer.device_count; i++) lesson_print_bytes(trainer.devices[i]);
    print_statistics(trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
