/* sharding.c: step 17: every rank steps a part of the weights, and keeps no state for the others.
 *
 * The model's weights are thought of as one long array, which is cut into as many equal parts as
 * there are ranks. Each rank gets the mean gradient of its part only (reduce-scatter), steps it
 * with an optimizer that knows nothing else, and all ranks collect all new weights (all-gather):
 * ZeRO-1.
 */
#include <string.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 17: divides the optimizer over the ranks.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_17 --optimizer adamw";

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
    size_t count, share;    // elements of all parameters; of a rank's part of them
    float *flat;            // [world, share] all gradients, then all weights
    Module *part;           // one parameter [share]: all that this rank's optimizer knows
    bool no_sum, no_gather; // --break: its own gradients; its own part of the new weights
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// ANCHOR: step
// All parameters' gradients or weights, one after another, are copied into `flat` or out of it.
typedef enum What { GRADIENTS_IN, WEIGHTS_IN, WEIGHTS_OUT } What;
static void copy_flat(const Trainer *t, What what) {
    float *next = t->flat;
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad) continue; // it is a buffer
        if (what == WEIGHTS_OUT)
            memcpy(tensor->data, next, tensor_bytes(tensor));
        else
            memcpy(next, what == GRADIENTS_IN ? tensor->grad : tensor->data, tensor_bytes(tensor));
        next += tensor_count(tensor);
    }
}

// After backward: from each rank's gradients to the same new weights on all ranks.
static void sharded_step(const Trainer *t, Optimizer *optimizer, double lr) {
    Tensor *part = module_parameter(t->part, 0);
    float *mine = t->flat + (size_t)t->me.rank * t->share;
    copy_flat(t, GRADIENTS_IN);
    if (t->no_sum)
        memcpy(part->grad, mine, tensor_bytes(part));
    else
        ranks_run(t->group, pg_reduce_scatter(t->flat, part->grad, t->share, PG_F32, PG_AVG));
    part->has_grad = true;
    optimizer_step(optimizer, lr);
    copy_flat(t, WEIGHTS_IN); // the old ones
    if (t->no_gather)
        memcpy(mine, part->data, tensor_bytes(part));
    else
        ranks_run(t->group, pg_all_gather(part->data, t->flat, t->share, PG_F32));
    copy_flat(t, WEIGHTS_OUT);
}
// ANCHOR_END: step

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

// Leaves the gradients of this rank's rows in the model; returns the mean of all ranks' losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Shard shard = {.batch = batch};
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &shard.begin,
                 &shard.end);
    shard.divisor = shard.end - shard.begin; // each rank takes the mean of its own rows
    run_shard(t, &shard);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&shard.loss, 1, PG_F64, PG_AVG));
    return shard.loss;
}

// This rank's part, as a model of its own. What is left over behind the last parameter is 0.
static void open_part(Trainer *t, bool lost_rest) {
    size_t world = (size_t)t->me.world_size;
    for (size_t k = 0; k < t->tensors.count; k++)
        if (t->tensors.items[k].tensor->requires_grad)
            t->count += tensor_count(t->tensors.items[k].tensor);
    t->share = lost_rest ? t->count / world : (t->count + world - 1) / world;
    t->flat = memory_zalloc((t->count + world) * sizeof *t->flat);
    t->part = module_create("Part", NULL);
    Tensor *part = module_add_parameter(t->part, t->device, "part", 1, &t->share);
    copy_flat(t, WEIGHTS_IN);
    memcpy(part->data, t->flat + (size_t)t->me.rank * t->share, tensor_bytes(part));
}

static void print_part(const Trainer *t, const Optimizer *optimizer) {
    size_t begin = (size_t)t->me.rank * t->share, end = begin + t->share, states = 0;
    while (states < 2 && optimizer_state_name(optimizer, (int)states)) states++;
    printf("rank %d steps weights %zu to %zu of %zu, state_bytes=%zu\n", t->me.rank, begin,
           end < t->count ? end : t->count, t->count, states * t->share * sizeof(float));
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
    module_close(t->part);
    free(t->flat);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_options(&lesson, "tutorial_17", SUMMARY, "none|no-sum|no-gather|lost-rest");
    lesson_begin(&lesson, argc, argv);
    trainer.no_sum = lesson_breaks(&lesson, "no-sum");
    trainer.no_gather = lesson_breaks(&lesson, "no-gather");
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    open_part(&trainer, lesson_breaks(&lesson, "lost-rest"));
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.part);
    print_part(&trainer, optimizer);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        sharded_step(&trainer, optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
