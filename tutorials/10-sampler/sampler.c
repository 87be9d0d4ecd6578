/* sampler.c: step 10: DistributedSampler: each rank draws every W-th sample of one common order. */
#include "ddp/distributed_sampler.h"
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

// ANCHOR: sampler
// This rank's samples: positions r, r + W, r + 2W, ... of an order that is the same on all ranks.
static void lay_out(Sampler *self, size_t epoch) {
    const size_t world = (size_t)self->world, batch = self->global_batch / world;
    const size_t count = (self->samples + world - 1) / world; // of each rank
    sampler_order(self, epoch, self->indices);                // shuffled with seed + epoch
    for (size_t i = self->samples; i < count * world; i++)
        self->indices[i] = self->indices[i - self->samples]; // padding: the first samples again
    for (size_t i = 0; i < count; i++)
        self->indices[i] = self->indices[(size_t)self->rank + i * world];
    for (size_t b = 0; b < self->batch_count; b++) {
        self->start[b + 1] = (b + 1) * batch < count ? (b + 1) * batch : count;
        self->global[b] = (self->start[b + 1] - self->start[b]) * world;
    }
}

// lay_out chooses the samples; the library's sampler computes the sizes.
static Sampler *open_sampler(const Trainer *t, const Lesson *lesson) {
    Error err = {0};
    const TrainConfig *c = &lesson->config;
    SamplerOfRank *open = lesson->blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler = open(lesson->data->train.count, c->global_batch, t->me.world_size,
                            t->me.rank, !c->no_shuffle, false, c->seed, &err);
    if (!sampler) error_exit(&err);
    if (!lesson->blocked) sampler->layout = lay_out;
    return sampler;
}
// ANCHOR_END: sampler

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
    lesson_begin(&lesson, "sampler", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    lesson_use_sampler(&lesson, open_sampler(&trainer, &lesson));
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double lr = lesson_lr(&lesson);
        ranks_print_epoch(trainer.group, &lesson, lr);
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
