/* batch_norm.c: step 15: batch norm when every rank sees only its own rows. With --batch-norm own,
 * each rank normalises with its own statistics, and the running statistics for evaluation are rank
 * 0's. With sync, the ranks exchange their statistics in every forward and backward
 * (SyncBatchNorm).
 */
#include <string.h>

#include "ddp/features/sync_batch_norm.h"
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
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// ANCHOR: buffers
// Broadcasts rank 0's running statistics (buffers) to all ranks.
static void broadcast_buffers(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad)
            ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward. Synchronised batch norms wait in it for all ranks.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    broadcast_buffers(t);
    return module_forward(t->model, t->tape, x);
}
// ANCHOR_END: buffers

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
    size_t begin, end;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, rows.count); // this rank's mean
    double value = lesson_backward(t->tape, loss);
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_AVG));
    return value;
}

// ANCHOR: sync
static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    bool sync = strcmp(lesson->batch_norm, "sync") == 0;
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, t->me.rank);
    if (sync && !sync_batch_norm_convert(t->model, t->group, &err)) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    wrap(t);
}
// ANCHOR_END: sync

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
    lesson_begin(&lesson, "batch-norm", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    uint64_t before = pg_sequence(trainer.group);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_collectives(trainer.group, before, lesson.steps);
    // ANCHOR: evaluation
    broadcast_buffers(&trainer); // the last forward changed them; evaluation needs equal buffers
    ranks_print_running_mean(trainer.group, trainer.model);
    // ANCHOR_END: evaluation
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
