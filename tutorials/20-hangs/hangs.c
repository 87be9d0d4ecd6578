/* hangs.c: step 20: ranks that wait for each other in vain.
 *
 * Step 8's training ends as soon as the loss is small enough, and that is a decision. All ranks
 * have to take it together, and all of them have to live: a rank that issues other collectives
 * than the others, or none, leaves them waiting. Five such mistakes can be made to happen.
 */
#include <signal.h>
#include <unistd.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 20: stops early, and what can go wrong with that.\n"
                              "Example: ddprun --nproc-per-node 3 tutorial_20 --epochs 4";
static const char BREAKS[] = "none|lonely-if|lone-stop|barrier|stuck|dead";

enum { BREAK_STEP = 5 }; // in which something happens to the last rank

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
    double timeout_s;     // how long a rank waits for the others before it gives up
    double stop_below;    // training ends when a rank's loss is smaller than this
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(const Trainer *t) {
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

// Leaves the mean gradients of all ranks in the model, and returns the loss of this rank's rows.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Shard shard = {.batch = batch};
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &shard.begin,
                 &shard.end);
    shard.divisor = shard.end - shard.begin; // each rank takes the mean of its own rows
    run_shard(t, &shard);
    average_gradients(t);
    tape_reset(t->tape);
    return shard.loss;
}

// ANCHOR: decisions
// Prints the mean of the ranks' losses in the steps that are logged. All ranks know which those
// are, and only one of them prints; but all are needed for the mean.
static void report(const Trainer *t, Lesson *lesson, double loss) {
    if (!lesson_is_logged(lesson)) return;
    if (lesson_breaks(lesson, "lonely-if") && t->me.rank > 0) return; // "only rank 0 prints"
    ranks_run(t->group, pg_all_reduce(&loss, 1, PG_F64, PG_AVG));
    lesson_report(lesson, loss);
}

// Each rank looks at its own rows, so each has an opinion. All stop as soon as one wants to.
static bool agree_to_stop(const Trainer *t, const Lesson *lesson, double own_loss) {
    int32_t stop = own_loss < t->stop_below;
    if (lesson_breaks(lesson, "lone-stop")) return stop;
    if (lesson_breaks(lesson, "barrier")) {
        ranks_run(t->group, pg_barrier());
        return stop;
    }
    ranks_run(t->group, pg_all_reduce(&stop, 1, PG_I32, PG_MAX));
    return stop;
}

// What happens to a rank from outside: its disk does not answer any more, or it is killed.
static void suffer(const Trainer *t, const Lesson *lesson) {
    if (t->me.rank < t->me.world_size - 1 || lesson->step != BREAK_STEP + 1) return;
    if (lesson_breaks(lesson, "stuck")) pause();
    if (lesson_breaks(lesson, "dead")) raise(SIGKILL);
}
// ANCHOR_END: decisions

// Learns from the environment which rank this is, and meets the others.
static void join(Trainer *t) {
    Error err = {0};
    if (init_from_env(&t->me, true, &err) != 0) error_exit(&err); // without a launcher: alone
    t->group = init_process_group("shm", &t->me, NULL, t->timeout_s, &err);
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
    Trainer trainer = {.timeout_s = 60};
    lesson_options(&lesson, "tutorial_20", SUMMARY, BREAKS);
    options_add(&lesson.options, (Option){"timeout", OPTION_FLOAT, &trainer.timeout_s, "S", 0.1,
                                          3600, "seconds that a rank waits for the others"});
    options_add(&lesson.options, (Option){"stop-below", OPTION_FLOAT, &trainer.stop_below, "LOSS",
                                          0, 100, "end as soon as a rank's loss is below this"});
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        suffer(&trainer, &lesson);
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        report(&trainer, &lesson, loss);
        if (agree_to_stop(&trainer, &lesson, loss)) break;
    }

    printf("rank %d ends after %zu steps\n", trainer.me.rank, lesson.step);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
