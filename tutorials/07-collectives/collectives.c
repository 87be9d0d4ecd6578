/* collectives.c: step 7: the ranks share the work, by messages that are written out.
 *
 * Rank 0 has the weights. In every step it sends them to all (broadcast), every rank computes the
 * gradients of its own shard, and rank 0 receives them and adds them up in order (reduce): step 4's
 * DataParallel, between processes. Every collective is made of sends and receives.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 7: trains in several processes that send messages.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_07 --epochs 2";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

typedef struct Shard { // some rows of the batch, and what becomes of them
    const Batch *batch;
    size_t begin, end; // the rows
    size_t divisor;    // what their losses are divided by
    double loss;       // their contribution to the batch's
} Shard;

typedef struct Trainer {
    Rendezvous me; // which rank this is, and of how many
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;   // the model's parameters and buffers
    size_t messages, bytes; // that this rank sent
    bool local_loss;        // --break: rank 0 reports the loss of its own shard
} Trainer;

// Leaves the gradients of the shard's rows in the model.
static void run_shard(Trainer *t, Shard *shard) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, shard->divisor);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    shard->loss = (double)tensor_item(loss);
}

// ANCHOR: collectives
static void send(Trainer *t, const void *data, size_t bytes, int to) {
    ranks_run(t->group, pg_send(data, bytes, PG_U8, to));
    t->messages++;
    t->bytes += bytes;
}

static void receive(const Trainer *t, void *data, size_t bytes, int from) {
    ranks_run(t->group, pg_recv(data, bytes, PG_U8, from));
}

// What rank 0 has, all have afterwards.
static void broadcast(Trainer *t, void *data, size_t bytes) {
    if (t->me.rank > 0) receive(t, data, bytes, 0);
    for (int to = 1; t->me.rank == 0 && to < t->me.world_size; to++) send(t, data, bytes, to);
}

// all [ranks]: on rank 0, what each rank had. On the others it is not touched.
static void gather(Trainer *t, double mine, double *all, int ranks) {
    if (t->me.rank > 0) send(t, &mine, sizeof mine, 0);
    for (int from = 1; t->me.rank == 0 && from < ranks; from++)
        receive(t, &all[from], sizeof mine, from);
    if (t->me.rank == 0) all[0] = mine;
}

// On rank 0, the sum of what the ranks had: ((r0 + r1) + r2) + ...
static void reduce(Trainer *t, float *numbers, size_t count, int ranks) {
    float *arrived = tape_memory(t->tape, count * sizeof *arrived);
    if (t->me.rank > 0) send(t, numbers, count * sizeof *numbers, 0);
    for (int from = 1; t->me.rank == 0 && from < ranks; from++) {
        receive(t, arrived, count * sizeof *arrived, from);
        for (size_t i = 0; i < count; i++) numbers[i] += arrived[i];
    }
}
// ANCHOR_END: collectives

// Leaves the gradients of the batch's mean loss in rank 0's model, and returns that loss there.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double losses[64], loss = 0;
    int ranks = 0; // that have rows
    Shard shard = {.batch = batch, .divisor = batch->count};
    for (size_t begin, end; ranks < t->me.world_size; ranks++) {
        chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)ranks, &begin, &end);
        if (begin == end) break; // more ranks than rows
        if (ranks == t->me.rank) shard.begin = begin, shard.end = end;
    }
    for (size_t k = 0; k < t->tensors.count; k++)
        broadcast(t, t->tensors.items[k].tensor->data, tensor_bytes(t->tensors.items[k].tensor));
    if (t->me.rank >= ranks) return 0;
    run_shard(t, &shard);
    for (size_t k = 0; k < t->tensors.count; k++) {
        const Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->has_grad) reduce(t, tensor->grad, tensor_count(tensor), ranks);
    }
    tape_reset(t->tape);
    if (t->local_loss)
        return shard.loss * (double)shard.divisor / (double)(shard.end - shard.begin);
    gather(t, shard.loss, losses, ranks);
    for (int rank = 0; t->me.rank == 0 && rank < ranks; rank++) loss += losses[rank];
    return loss;
}

// Learns from the environment which rank this is, and meets the others.
static void join(Trainer *t) {
    Error err = {0};
    if (init_from_env(&t->me, true, &err) != 0) error_exit(&err); // without a launcher: alone
    t->group = init_process_group("shm", &t->me, NULL, TIMEOUT_S, &err);
    if (!t->group) error_exit(&err);
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(t->me.local_rank);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
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
    lesson_options(&lesson, "tutorial_07", SUMMARY, "none|local-loss");
    lesson_begin(&lesson, argc, argv);
    trainer.local_loss = lesson_breaks(&lesson, "local-loss");
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
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
