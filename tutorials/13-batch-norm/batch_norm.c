/* batch_norm.c: step 13: batch norm when every rank sees only its own rows.
 *
 * Batch norm mixes the rows of a batch, and so the ranks no longer compute what one device would.
 * With --batch-norm own, each rank normalises with its own rows' statistics, and what is remembered
 * for evaluation (the buffers) is rank 0's: before every forward it is broadcast. With --batch-norm
 * sync, the ranks exchange their statistics in every forward and backward (SyncBatchNorm).
 */
#include <string.h>

#include "ddp/features/sync_batch_norm.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 13: batch norm across ranks.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_13 --model convnet";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

enum { MOST_RANKS = 64 };

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
    const char *batch_norm; // "own" statistics, or "sync"
    bool keeps_buffers;     // --break: the buffers are not broadcast
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// ANCHOR: buffers
// What the layers remember from forward to forward becomes rank 0's on all ranks.
static void broadcast_buffers(const Trainer *t) {
    for (size_t k = 0; !t->keeps_buffers && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad)
            ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward. In it, layers that were made synchronised wait for all ranks.
static Tensor *wrapper_forward(const Trainer *t, Tensor *x) {
    broadcast_buffers(t);
    return module_forward(t->model, t->tape, x);
}
// ANCHOR_END: buffers

// After backward: the gradients of all ranks become their mean.
static void average_gradients(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // else it is a buffer
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
}

// Leaves the gradients of the shard's rows in the model.
static void run_shard(const Trainer *t, Shard *shard) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, shard->divisor);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    shard->loss = (double)tensor_item(loss);
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(const Trainer *t, const Batch *batch) {
    Shard shard = {.batch = batch};
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &shard.begin,
                 &shard.end);
    shard.divisor = shard.end - shard.begin; // each rank takes the mean of its own rows
    run_shard(t, &shard);
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&shard.loss, 1, PG_F64, PG_AVG));
    return shard.loss;
}

// A number of every rank, printed by rank 0.
static void print_of_all(const Trainer *t, const char *name, double number) {
    double numbers[MOST_RANKS];
    ranks_run(t->group, pg_all_gather(&number, numbers, 1, PG_F64));
    for (int rank = 0; t->me.rank == 0 && rank < t->me.world_size; rank++)
        printf("rank %d: %s=%.6f\n", rank, name, numbers[rank]);
}

static void print_running_mean(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++)
        if (strcmp(t->tensors.items[k].name, "bn1.running_mean") == 0)
            print_of_all(t, "bn1.running_mean[0]",
                         (double)tensor_f32(t->tensors.items[k].tensor)[0]);
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
    t->model = train_create_model(&lesson->config, lesson->data, t->device, t->me.rank, &err);
    if (!t->model) error_exit(&err);
    if (strcmp(t->batch_norm, "sync") == 0 && !sync_batch_norm_convert(t->model, t->group, &err))
        error_exit(&err);
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
    Trainer trainer = {.batch_norm = "own"};
    lesson_options(&lesson, "tutorial_13", SUMMARY, "none|no-buffers");
    options_add_choice(&lesson.options, "batch-norm", &trainer.batch_norm, "own|sync",
                       "statistics of the rank's own rows, or of all ranks' rows");
    lesson_begin(&lesson, argc, argv);
    trainer.keeps_buffers = lesson_breaks(&lesson, "no-buffers");
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    uint64_t before = pg_sequence(trainer.group);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }
    uint64_t each = (pg_sequence(trainer.group) - before) / lesson.steps;

    broadcast_buffers(&trainer); // the last forward has changed them; evaluation wants equal ones
    if (trainer.me.rank == 0) printf("collectives in a step: %zu\n", (size_t)each);
    print_running_mean(&trainer);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
