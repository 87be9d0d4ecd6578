/* sharding.c: step 20: every rank steps a part of the weights, with state for that part: ZeRO-1. */
#include <string.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors; // the model's parameters and buffers
    // ANCHOR: part
    size_t count, share; // elements of all parameters; of a rank's part of them
    float *flat;         // [world, share] all gradients, then all weights
    Module *part;        // one parameter [share], which this rank's optimizer steps
    // ANCHOR_END: part
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// ANCHOR: step
// After backward: averages the gradients, steps this rank's part, gathers all parts' new weights.
static void sharded_step(const Trainer *t, Optimizer *optimizer, double lr) {
    Tensor *part = module_parameter(t->part, 0);
    lesson_flatten(&t->tensors, GRADIENTS_IN, t->flat);
    ranks_run(t->group, pg_reduce_scatter(t->flat, part->grad, t->share, PG_F32, PG_AVG));
    part->has_grad = true;
    optimizer_step(optimizer, lr);
    ranks_run(t->group, pg_all_gather(part->data, t->flat, t->share, PG_F32));
    lesson_flatten(&t->tensors, WEIGHTS_OUT, t->flat);
}

// Creates this rank's part as a module. Its elements behind the last parameter are padding: 0.
static void open_part(Trainer *t) {
    const size_t world = (size_t)t->me.world_size;
    t->count = lesson_count(&t->tensors);
    t->share = (t->count + world - 1) / world;
    t->flat = memory_zalloc((t->count + world) * sizeof *t->flat);
    t->part = module_create("Part", NULL);
    Tensor *part = module_add_parameter(t->part, t->device, "part", 1, &t->share);
    lesson_flatten(&t->tensors, WEIGHTS_IN, t->flat);
    memcpy(part->data, t->flat + (size_t)t->me.rank * t->share, tensor_bytes(part));
}
// ANCHOR_END: step

// Leaves the gradients of this rank's rows in the model; returns the mean of all ranks' losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin, end;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, rows.count); // this rank's mean
    double value = lesson_backward(t->tape, loss);
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
    open_part(t);
}

static void trainer_close(Trainer *t) {
    module_close(t->part);
    free(t->flat);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "sharding", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.part);
    ranks_print_part(trainer.group, optimizer, trainer.share, trainer.count);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        sharded_step(&trainer, optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
