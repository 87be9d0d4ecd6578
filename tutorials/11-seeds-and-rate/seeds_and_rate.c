/* seeds_and_rate.c: step 11: noise that differs on the ranks, and a learning rate that does not. */
#include <math.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

#define PI 3.14159265358979323846

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    bool expects_backward; // the last forward went through the wrapper
} Trainer;

// ANCHOR: noise
// Noise is data: each rank draws its own, or the batch contains the same noise W times.
static void add_noise(const Trainer *t, const Lesson *lesson, const Batch *batch) {
    uint64_t seed = lesson->config.seed + (uint64_t)t->me.rank;
    double first = lesson_add_noise(lesson, batch, lesson->noise, seed);
    if (lesson->step == 1) ranks_print(t->group, "first noise ", first, 4);
}
// ANCHOR_END: noise

// ANCHOR: rate
// The learning rate of a step: it rises linearly in the warm-up, and then falls to 0 as half a
// cosine. All ranks step together, so a step counts once.
static double learning_rate(const Schedule *s, size_t step) {
    if (s->kind != SCHEDULE_COSINE) return schedule_lr(s, step); // another --schedule
    if (step < s->warmup_steps) return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    double span = (double)(s->total_steps - s->warmup_steps);
    double done = (double)(step - s->warmup_steps) / span; // 0 after the warm-up, 1 at the end
    return s->lr * 0.5 * (1 + cos(PI * (done < 1 ? done : 1)));
}
// ANCHOR_END: rate

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

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_AVG));
    return value;
}

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
    Trainer trainer = {0};
    lesson_begin(&lesson, "seeds-and-rate", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    ranks_share_samples(trainer.group, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double lr = learning_rate(&lesson.schedule, lesson.step - 1);
        ranks_print_epoch(trainer.group, &lesson, lr);
        if (lesson.noise > 0) add_noise(&trainer, &lesson, batch);
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lr);
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
