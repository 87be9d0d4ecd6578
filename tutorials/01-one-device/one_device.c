/* one_device.c: step 1: training on one device, with nothing hidden.
 *
 * A step is: take a batch, run the model forward, compute the loss, run backward, let the optimizer
 * change the weights. All later steps of the tutorial change how the batch's gradients are
 * computed (compute_gradients); the rest stays the same.
 */
#include "tutorials/lesson.h"

typedef struct Trainer {
    Device *device;
    Module *model;
    Tape *tape;
} Trainer;

// ANCHOR: gradients
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    tape_reset(t->tape);
    return value;
}
// ANCHOR_END: gradients

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(0);
    t->model = lesson_model(lesson, t->device, 0);
    t->tape = tape_create(t->device, NULL);
}

static void trainer_close(Trainer *t) {
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "one-device", argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
