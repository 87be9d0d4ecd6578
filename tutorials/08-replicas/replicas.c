/* replicas.c: step 8: every rank keeps weights of its own: DistributedDataParallel.
 *
 * The weights are made equal once, when the model is wrapped. From then on each rank computes the
 * gradients of its own rows, all ranks average them (all-reduce), and each takes the same step with
 * its own optimizer. Equal weights and equal gradients give equal weights: only gradients travel.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 8: trains with DistributedDataParallel, written out.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_08 --epochs 2";

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
    NamedTensors tensors;      // the model's parameters and buffers
    bool expects_backward;     // the last forward went through the wrapper
    bool broadcasts, bypassed; // --break: not at the start; a forward beside the wrapper
} Trainer;

// ANCHOR: wrapper
// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; t->broadcasts && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward: notes that the gradients of this one are to be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    return module_forward(t->model, t->tape, x);
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; t->expects_backward && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // else it is a buffer
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
    t->expects_backward = false;
}
// ANCHOR_END: wrapper

// Leaves the gradients of the shard's rows in the model.
static void run_shard(Trainer *t, Shard *shard) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = t->bypassed ? module_forward(t->model, t->tape, rows.samples)
                                  : wrapper_forward(t, rows.samples);
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

// How the first weight changed: new = old - lr * gradient.
static void print_update(const Trainer *t, double old, double lr) {
    const Tensor *first = t->tensors.items[0].tensor;
    printf("rank %d: %.4f = %.4f - %g*%.4f\n", t->me.rank, (double)tensor_f32(first)[0], old, lr,
           (double)first->grad[0]);
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
    bool show_update = false;
    lesson_options(&lesson, "tutorial_08", SUMMARY, "none|no-broadcast|bypass");
    options_add_flag(&lesson.options, "show-update", &show_update,
                     "print how the first weight changes");
    lesson_begin(&lesson, argc, argv);
    trainer.broadcasts = !lesson_breaks(&lesson, "no-broadcast");
    trainer.bypassed = lesson_breaks(&lesson, "bypass");
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        double old = (double)tensor_f32(trainer.tensors.items[0].tensor)[0];
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        if (show_update) print_update(&trainer, old, lesson_lr(&lesson));
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
