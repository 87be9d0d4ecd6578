/* uneven.c: step 19: ranks that run out of batches while the others train on (PyTorch's Join). */
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
    double active;         // ranks that have a batch in this step
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
// The gradients of the mean loss of the rows [begin, end); returns that loss.
static double run_rows(Trainer *t, const Batch *batch, size_t begin, size_t end) {
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, rows.count);
    return lesson_backward(t->tape, loss);
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses. A rank
// without a batch (NULL) contributes zeros.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin = 0, end = 0;
    double value = 0;
    if (batch)
        chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    if (begin < end) {
        value = run_rows(t, batch, begin, end);
    } else {
        lesson_zero_gradients(&t->tensors);
        t->expects_backward = true; // this rank takes part in the all-reduces
    }
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_SUM));
    return value / t->active;
}

// Counts the ranks with a batch, and returns whether any rank has one. Collective.
static bool anyone_trains(Trainer *t, bool has_batch) {
    t->active = has_batch;
    ranks_run(t->group, pg_all_reduce(&t->active, 1, PG_F64, PG_SUM));
    return t->active > 0;
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
    Trainer trainer = {0};
    lesson_begin(&lesson, "uneven", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    // ANCHOR: join
    uint64_t before = pg_sequence(trainer.group);
    for (const Batch *batch; anyone_trains(&trainer, (batch = lesson_next(&lesson)));) {
        double loss = compute_gradients(&trainer, batch);
        if (!batch) continue; // this rank has joined
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_all_collectives(trainer.group, before);
    if (lesson.uneven > 0) wrap(&trainer); // rank 0 took the most steps
    // ANCHOR_END: join
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
