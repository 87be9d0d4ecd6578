/* gather_ahead.c: step 22: while a unit computes, others are gathered and reduced. */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"
#include "tutorials/units.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    Units *sharded_layers; // all layers; this rank keeps a part of each
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// ANCHOR: ahead
// Starts the all-gather of the unit's parts.
static void start_gather(Unit *unit) {
    if (unit->weights) return; // whole, or its all-gather is in flight
    unit_alloc(unit, WEIGHTS);
    Collective parts = pg_all_gather(unit->part->data, unit->weights, unit->share, PG_F32);
    unit->arriving = ranks_start(unit->group, parts);
}

// On return the unit is whole, and the all-gather of `after` is in flight.
static void gather(Unit *unit, Unit *after) {
    start_gather(unit);
    ranks_wait(&unit->arriving);
    if (after) start_gather(after);
}

// Called before the unit's backward.
static void begin_backward(Unit *unit) {
    gather(unit, unit->previous);
    unit_alloc(unit, GRADIENTS);
}

// Waits for the mean gradient of this rank's part.
static void finish_reduce(Unit *unit) {
    ranks_wait(&unit->leaving);
    unit_free(unit, GRADIENTS);
}

// Called after the unit's backward. Its gradients are reduced while the previous unit computes.
static void end_backward(Unit *unit) {
    Collective mean =
        pg_reduce_scatter(unit->gradients, unit->part->grad, unit->share, PG_F32, PG_AVG);
    unit->leaving = ranks_start(unit->group, mean);
    unit_free(unit, WEIGHTS);
    if (unit->next) finish_reduce(unit->next);
}

static Tensor *forward(Unit *unit, Tape *tape, Tensor *x) {
    x = unit_on_backward(unit, tape, x, end_backward);
    gather(unit, unit->next);
    x = unit_compute(unit, tape, x);
    if (unit->next) unit_free(unit, WEIGHTS); // backward begins with the last unit
    return unit_on_backward(unit, tape, x, begin_backward);
}
// ANCHOR_END: ahead

// Leaves the mean gradients of all ranks in the parts, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin, end;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    // ANCHOR: step
    Unit *units = t->sharded_layers->items;
    Tensor *outputs = rows.samples;
    for (size_t i = 0; i < t->sharded_layers->count; i++)
        outputs = forward(&units[i], t->tape, outputs);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, rows.count); // this rank's mean
    double value = lesson_backward(t->tape, loss);
    end_backward(&units[0]); // its input needs no gradient, so backward did not call this
    finish_reduce(&units[0]);
    // ANCHOR_END: step
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
    t->sharded_layers = units_open(t->group, t->model, lesson);
}

static void trainer_close(Trainer *t) {
    units_close(t->sharded_layers);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "gather-ahead", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.sharded_layers->parts);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        units_count(trainer.sharded_layers);
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    units_print(trainer.sharded_layers);
    for (size_t i = 0; i < trainer.sharded_layers->count; i++) // for lesson_end's test and file
        gather(&trainer.sharded_layers->items[i], NULL);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
