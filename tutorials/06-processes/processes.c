/* processes.c: step 6: several processes that know each other.
 *
 * A launcher starts the program W times. Each process is a rank: it learns its number from the
 * environment and meets the others. That is all that is new: every rank still computes all shards,
 * and so all end with step 2's weights. Who prints, who saves, and who waits for whom is decided
 * here.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 6: the same training in several processes.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_06 --epochs 2";

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
    NamedTensors tensors; // the model's parameters and buffers
    float **sums; // [tensors.count], each as large as its tensor: the shards' gradients added up
    int shard_count;
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
    tape_reset(t->tape);
}

// sums = gradients for the first shard, sums += gradients for the others: ((g0 + g1) + g2) + ...
static void add_gradients(Trainer *t, const NamedTensors *tensors, bool first) {
    for (size_t k = 0; k < tensors->count; k++) {
        const Tensor *tensor = tensors->items[k].tensor;
        float *sum = t->sums[k];
        for (size_t i = 0; tensor->has_grad && i < tensor_count(tensor); i++)
            sum[i] = first ? tensor->grad[i] : sum[i] + tensor->grad[i];
    }
}

static void install_gradients(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad) continue; // a buffer
        memcpy(tensor->grad, t->sums[k], tensor_bytes(tensor));
        tensor->has_grad = true;
    }
}

// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double loss = 0;
    for (int i = 0; i < t->shard_count; i++) {
        Shard shard = {.batch = batch, .divisor = batch->count};
        chunk_bounds(batch->count, (size_t)t->shard_count, (size_t)i, &shard.begin, &shard.end);
        if (shard.begin == shard.end) break; // more shards than rows
        run_shard(t, &shard);
        loss += shard.loss;
        add_gradients(t, &t->tensors, i == 0);
    }
    install_gradients(t);
    return loss;
}

// ANCHOR: ranks
// Learns from the environment which rank this is, and meets the others.
static void join(Trainer *t) {
    Error err = {0};
    if (init_from_env(&t->me, true, &err) != 0) error_exit(&err); // without a launcher: alone
    t->group = init_process_group("shm", &t->me, NULL, TIMEOUT_S, &err);
    if (!t->group) error_exit(&err);
    printf("I am rank %d of %d, process %d; we meet at %s:%d\n", t->me.rank, t->me.world_size,
           getpid(), t->me.master_addr, t->me.master_port);
}

// Rank 0 has a slow disk. A rank that reads what it saves has to wait for it.
static void save(const Trainer *t, Lesson *lesson, bool wait) {
    const char *file = lesson->config.save;
    struct timespec slow = {.tv_nsec = 300 * 1000 * 1000};
    if (file && t->me.rank == 0) nanosleep(&slow, NULL);
    lesson_end(lesson, t->model);
    if (wait) ranks_run(t->group, pg_barrier());
    if (file && t->me.rank > 0)
        printf("the file is %s\n", access(file, R_OK) == 0 ? "there" : "not there");
}
// ANCHOR_END: ranks

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    if (t->shard_count == 0) t->shard_count = t->me.world_size;
    t->device = lesson_device(t->me.local_rank);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->sums = memory_zalloc(t->tensors.count * sizeof *t->sums);
    for (size_t k = 0; k < t->tensors.count; k++)
        t->sums[k] = memory_zalloc(tensor_bytes(t->tensors.items[k].tensor));
}

static void trainer_close(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) free(t->sums[k]);
    free(t->sums);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.shard_count = 0};
    lesson_options(&lesson, "tutorial_06", SUMMARY, "none|every-rank-prints|no-barrier");
    options_add_int(&lesson.options, "shards", &trainer.shard_count, 0, 64,
                    "parts that a batch is cut into (0: one per rank)");
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0 && !lesson_breaks(&lesson, "every-rank-prints");
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    save(&trainer, &lesson, !lesson_breaks(&lesson, "no-barrier"));
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
