/* machines.c: step 27: a rank has a number in the job, and one on its machine, the node. */
#include <unistd.h>

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

// ANCHOR: node
// Each node has as many devices as ranks, numbered from 0. (Here they are CPU devices.)
static int choose_device(const Trainer *t) {
    Error err = {0};
    int device = t->me.local_rank;
    if (device < t->me.local_world_size) return device;
    error_set(&err, STATUS_FAILED, "rank %d wants device %d, and its node has 0 to %d", t->me.rank,
              device, t->me.local_world_size - 1);
    error_exit(&err);
}

// Unpacks the data on the node's own disk: once on each node, by its first rank. The others wait.
static void prepare(const Trainer *t, const char *scratch) {
    char file[1024];
    bool first = t->me.local_rank == 0;
    snprintf(file, sizeof file, "%s/unpacked", scratch);
    FILE *unpacked = first ? fopen(file, "w") : NULL;
    lesson_need(!first || unpacked, file, "cannot be written");
    if (unpacked) fclose(unpacked);
    ranks_run(t->group, pg_barrier());
    printf("rank %d, local rank %d, node %d: the data is %s\n", t->me.rank, t->me.local_rank,
           t->me.rank / t->me.local_world_size, access(file, R_OK) == 0 ? "there" : "NOT there");
}
// ANCHOR_END: node

static void trainer_open(Trainer *t, const Lesson *lesson) {
    if (lesson->scratch) prepare(t, lesson->scratch);
    t->device = lesson_device(choose_device(t));
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
    lesson_begin(&lesson, "machines", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
