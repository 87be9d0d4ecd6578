/* checkpoints.c: step 15: stopping, and going on as if nothing had happened.
 *
 * A checkpoint is all that the next step depends on: the weights, what the optimizer remembers, and
 * the place in the run. Rank 0 writes it, under another name first. Every rank reads it.
 */
#include <unistd.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 15: trains with checkpoints.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_15 --checkpoint FILE";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up
#define EVERY     10   // steps between checkpoints

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
    Optimizer *optimizer;
    const Lesson *lesson;
    const char *checkpoint;  // a file; NULL: none is written
    size_t steps, killed_at; // done so far; --kill-at
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // else it is a buffer
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
}

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

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
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

// ANCHOR: checkpoint
static void transfer(Trainer *t, FILE *file, bool saves, void *data, size_t bytes) {
    size_t done = saves ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    lesson_need(done == bytes, t->checkpoint, "is not a whole checkpoint");
}

// All that the next step depends on.
static void transfer_all(Trainer *t, FILE *file, bool saves) {
    const Optimizer *optimizer = t->optimizer;
    size_t count = optimizer->parameters.count;
    transfer(t, file, saves, &t->steps, sizeof t->steps);
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        transfer(t, file, saves, tensor->data, tensor_bytes(tensor));
    }
    if (saves && t->steps == t->killed_at) _exit(137); // in the middle, as if killed
    for (size_t i = 0; i < 2 * count; i++) {           // momentum, or Adam's two averages
        float *state = optimizer->state[i / count][i % count];
        size_t bytes = tensor_bytes(optimizer->parameters.items[i % count].tensor);
        if (state) transfer(t, file, saves, state, bytes);
    }
    transfer(t, file, saves, optimizer->steps, count * sizeof *optimizer->steps);
}

// Rank 0 writes a new file, and gives it the name when it is whole. The others wait.
static void save(Trainer *t) {
    char name[1024];
    const char *ending = lesson_breaks(t->lesson, "in-place") ? "" : ".new";
    snprintf(name, sizeof name, "%s%s", t->checkpoint, ending);
    if (t->me.rank == 0) {
        FILE *file = fopen(name, "wb");
        lesson_need(file != NULL, name, "cannot be opened");
        transfer_all(t, file, true);
        bool whole = fflush(file) == 0 && fsync(fileno(file)) == 0 && fclose(file) == 0;
        lesson_need(whole && rename(name, t->checkpoint) == 0, name, "cannot be written");
    }
    ranks_run(t->group, pg_barrier());
}

// Every rank reads the file by itself, if there is one.
static void load(Trainer *t) {
    FILE *file = fopen(t->checkpoint, "rb");
    if (!file) return;
    transfer_all(t, file, false);
    fclose(file);
    bool forgets = lesson_breaks(t->lesson, "no-momentum") ||
                   (lesson_breaks(t->lesson, "momentum-on-rank-0") && t->me.rank > 0);
    for (size_t i = 0; forgets && i < t->optimizer->parameters.count; i++)
        t->optimizer->steps[i] = 0; // without any step, there is no momentum
}
// ANCHOR_END: checkpoint

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
    Trainer trainer = {.lesson = &lesson};
    lesson_options(&lesson, "tutorial_15", SUMMARY,
                   "none|in-place|no-momentum|momentum-on-rank-0|epoch-start");
    options_add(&lesson.options,
                (Option){"checkpoint", OPTION_STRING, &trainer.checkpoint, "FILE", 0, 0,
                         "written regularly; if it is there, go on from it"});
    options_add(&lesson.options, (Option){"kill-at", OPTION_SIZE, &trainer.killed_at, "N", 0, 1e9,
                                          "die while the checkpoint of step N is written"});
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = trainer.optimizer = lesson_optimizer(&lesson, trainer.model);

    if (trainer.checkpoint) load(&trainer);
    if (lesson_breaks(&lesson, "epoch-start"))
        trainer.steps -= trainer.steps % lesson.sampler->batch_count;
    lesson_skip(&lesson, trainer.steps);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        if (trainer.checkpoint && ++trainer.steps % EVERY == 0) save(&trainer);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
