/* dp_costs.c: step 6: the library's DataParallel, and where its time and memory go.
 *
 * data_parallel does all of step 5's copies in one call, so the step is step 1's again.
 */
#include "common/base/profile.h"
#include "dp/data_parallel.h"
#include "tutorials/lesson.h"

// ANCHOR: trainer
typedef struct Trainer {
    Device *devices[DP_MAX_DEVICES];
    Module *model;   // on the first device
    Module *wrapper; // scatter, replicate, parallel apply, gather
    Tape *tape;
    Profile profile; // the time in each phase of the steps
} Trainer;
// ANCHOR_END: trainer

// ANCHOR: wrapper
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = module_forward(t->wrapper, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    tape_reset(t->tape);
    return value;
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    for (size_t i = 0; i < lesson->devices; i++) t->devices[i] = lesson_device((int)i);
    t->model = lesson_model(lesson, t->devices[0], 0);
    t->wrapper = data_parallel(t->model, t->devices, (int)lesson->devices, &err);
    if (!t->wrapper) error_exit(&err);
    t->tape = tape_create(t->devices[0], &t->profile);
}
// ANCHOR_END: wrapper

static void trainer_close(Trainer *t, const Lesson *lesson) {
    tape_close(t->tape);
    module_close(t->wrapper); // closes the model, too
    for (size_t i = 0; i < lesson->devices; i++) device_close(t->devices[i]);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "dp-costs", argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    // ANCHOR: measurements
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        lesson_print_shares(&lesson, batch, lesson.devices);
        profile_begin_step(&trainer.profile);
        double loss = compute_gradients(&trainer, batch);
        Phase phase = profile_enter(&trainer.profile, PHASE_OPTIMIZER);
        optimizer_step(optimizer, lesson_lr(&lesson));
        profile_leave(&trainer.profile, phase);
        profile_end_step(&trainer.profile);
        lesson_report(&lesson, loss);
    }
    lesson_print_phases(&trainer.profile);
    for (size_t i = 0; i < lesson.devices; i++) lesson_print_bytes(trainer.devices[i]);
    lesson_print_running_mean(trainer.model);
    // ANCHOR_END: measurements

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer, &lesson);
    return STATUS_OK;
}
