/* accumulate_and_clip.c: step 18: gradients of several backwards, clipped, for one step. */
#include "common/nn/clip.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    bool expects_backward; // the last forward went through the wrapper
    const Lesson *lesson;
    GradClip *clip;
    double norm; // of the last step's gradients
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward: records that the gradients of its backward must be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    return module_forward(t->model, t->tape, x);
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; t->expects_backward && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // a buffer has no gradient
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
    t->expects_backward = false;
}

// ANCHOR: step
// Adds the gradients of the rows [begin, end) to the model's; returns their part of the loss.
static double run_rows(Trainer *t, const Batch *batch, size_t begin, size_t end, size_t divisor) {
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, divisor);
    double value = lesson_backward(t->tape, loss);
    tape_reset(t->tape);
    return value;
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin, end, from, to, parts = t->lesson->micro_batches;
    double value = 0;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    for (size_t m = 0; m < parts; m++) {
        chunk_bounds(end - begin, parts, m, &from, &to);
        if (m > 0 && from == to) break; // fewer rows than micro-batches
        value += run_rows(t, batch, begin + from, begin + to, end - begin);
    }
    average_gradients(t); // once; PyTorch: no_sync around all micro-batches but the last
    if (t->lesson->max_norm > 0) t->norm = grad_clip(t->clip, t->lesson->max_norm);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_AVG));
    return value;
}
// ANCHOR_END: step

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, t->me.rank);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    wrap(t);
}

static void trainer_close(Trainer *t) {
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "accumulate-and-clip", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);
    trainer.clip = grad_clip_open(&optimizer->parameters, NULL);

    uint64_t before = pg_sequence(trainer.group);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_norm(trainer.group, before, trainer.norm);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    grad_clip_close(trainer.clip);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
