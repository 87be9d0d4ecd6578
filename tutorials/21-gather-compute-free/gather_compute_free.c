/* gather_compute_free.c: step 21: a rank keeps a part of each unit, and gathers it to compute. */
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

// ANCHOR: unit
// Gathers all ranks' parts into the whole unit.
static void gather(Unit *unit) {
    unit_alloc(unit, WEIGHTS);
    ranks_run(unit->group, pg_all_gather(unit->part->data, unit->weights, unit->share, PG_F32));
}

// Called before the unit's backward.
static void begin_backward(Unit *unit) {
    gather(unit);
    unit_alloc(unit, GRADIENTS);
}

// Called after the unit's backward: its part's gradient becomes the mean over the ranks.
static void end_backward(Unit *unit) {
    Collective mean =
        pg_reduce_scatter(unit->gradients, unit->part->grad, unit->share, PG_F32, PG_AVG);
    ranks_run(unit->group, mean);
    unit_free(unit, WEIGHTS | GRADIENTS);
}

static Tensor *forward(Unit *unit, Tape *tape, Tensor *x) {
    x = unit_on_backward(unit, tape, x, end_backward);
    gather(unit);
    x = unit_compute(unit, tape, x);
    unit_free(unit, WEIGHTS);
    return unit_on_backward(unit, tape, x, begin_backward);
}
// ANCHOR_END: unit

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
    lesson_begin(&lesson, "gather-compute-free", argc, argv);
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
        gather(&trainer.sharded_layers->items[i]);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
