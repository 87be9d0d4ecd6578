/* collectives.c: step 8: the ranks share the work, by messages that are written out.
 *
 * In every step rank 0 sends its weights to all (broadcast), every rank computes the gradients of
 * its own rows, and rank 0 receives them and adds them up in order (reduce): step 5's DataParallel,
 * between processes.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;   // the model's parameters and buffers
    size_t messages, bytes; // sent by this rank
} Trainer;

// ANCHOR: collectives
static void send(Trainer *t, const void *data, size_t bytes, int to) {
    ranks_run(t->group, pg_send(data, bytes, PG_U8, to));
    t->messages++;
    t->bytes += bytes;
}

static void receive(const Trainer *t, void *data, size_t bytes, int from) {
    ranks_run(t->group, pg_recv(data, bytes, PG_U8, from));
}

// Copies rank 0's data to all ranks.
static void broadcast(Trainer *t, void *data, size_t bytes) {
    if (t->me.rank > 0) receive(t, data, bytes, 0);
    for (int to = 1; t->me.rank == 0 && to < t->me.world_size; to++) send(t, data, bytes, to);
}

// all [ranks]: on rank 0, each rank's `mine`. Not written on the other ranks.
static void gather(Trainer *t, double mine, double *all, int ranks) {
    if (t->me.rank > 0) send(t, &mine, sizeof mine, 0);
    for (int from = 1; t->me.rank == 0 && from < ranks; from++)
        receive(t, &all[from], sizeof mine, from);
    if (t->me.rank == 0) all[0] = mine;
}

// On rank 0, the sum of all ranks' numbers: ((r0 + r1) + r2) + ...
static void reduce(Trainer *t, float *numbers, size_t count, int ranks) {
    float *arrived = tape_memory(t->tape, count * sizeof *arrived);
    if (t->me.rank > 0) send(t, numbers, count * sizeof *numbers, 0);
    for (int from = 1; t->me.rank == 0 && from < ranks; from++) {
        receive(t, arrived, count * sizeof *arrived, from);
        for (size_t i = 0; i < count; i++) numbers[i] += arrived[i];
    }
}
// ANCHOR_END: collectives

// ANCHOR: step
// Leaves the gradients of the batch's mean loss in rank 0's model, and returns that loss there.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double losses[64], value = 0;
    size_t begin, end;
    int ranks = lesson_parts(batch->count, t->me.world_size); // ranks with rows
    for (size_t k = 0; k < t->tensors.count; k++)
        broadcast(t, t->tensors.items[k].tensor->data, tensor_bytes(t->tensors.items[k].tensor));
    if (t->me.rank >= ranks) return 0;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double own = lesson_backward(t->tape, loss);
    for (size_t k = 0; k < t->tensors.count; k++) {
        const Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->has_grad) reduce(t, tensor->grad, tensor_count(tensor), ranks);
    }
    tape_reset(t->tape);
    gather(t, own, losses, ranks);
    for (int rank = 0; t->me.rank == 0 && rank < ranks; rank++) value += losses[rank];
    return value;
}
// ANCHOR_END: step

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, 0);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
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
    lesson_begin(&lesson, "collectives", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        if (trainer.me.rank == 0) optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        if (lesson.step == 1)
            printf("rank %d sent %zu messages, %zu bytes\n", trainer.me.rank, trainer.messages,
                   trainer.bytes);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
