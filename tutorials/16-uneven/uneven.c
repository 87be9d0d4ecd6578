/* uneven.c: step 16: steps in which not every backward, and not every rank, is like the others.
 *
 * A step may have several micro-batches, of which only the last one's backward is followed by the
 * reduction. Gradients may be clipped, after it. And a rank may run out of rows before the others:
 * then it still takes part in their collectives, with zeros (PyTorch's Join).
 */
#include <string.h>

#include "common/nn/clip.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 16: micro-batches, clipping, and ranks that run out of rows.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_16 --micro-batches 4";

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
    const Lesson *lesson;
    size_t micro_batches;  // in a step
    double max_norm, norm; // to clip to, 0: no clipping; of the last step's gradients
    GradClip *clip;
    double active; // ranks that have rows in this step
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// After backward: the gradients of all ranks become their mean. Ranks without rows add zeros.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->has_grad && tensor->requires_grad)
            memset(tensor->grad, 0, tensor_bytes(tensor));
        tensor->has_grad = tensor->requires_grad;
        if (tensor->requires_grad) // else it is a buffer
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
}

// Adds the gradients of the shard's rows to those in the model.
static void run_shard(Trainer *t, Shard *shard) {
    Error err = {0};
    Rows rows = lesson_rows(t->tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, shard->divisor);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    shard->loss = (double)tensor_item(loss);
    tape_reset(t->tape);
}

// ANCHOR: step
static void clip(Trainer *t) {
    bool twice = lesson_breaks(t->lesson, "norm-twice"); // the norms are added up over the ranks
    if (t->max_norm > 0) t->norm = grad_clip(t->clip, t->max_norm / (twice ? t->active : 1));
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin = 0, end = 0;
    double loss = 0;
    bool clips_first = lesson_breaks(t->lesson, "clip-first");
    size_t synchronised = lesson_breaks(t->lesson, "first") ? 0 : t->micro_batches - 1;
    module_zero_grad(t->model);
    if (batch)
        chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    for (size_t m = 0; m < t->micro_batches; m++) {
        Shard shard = {.batch = batch, .divisor = end - begin}; // the rows of all micro-batches
        chunk_bounds(end - begin, t->micro_batches, m, &shard.begin, &shard.end);
        if (lesson_breaks(t->lesson, "mean-of-means"))
            shard.divisor = (shard.end - shard.begin) * t->micro_batches;
        shard.begin += begin, shard.end += begin;
        if (shard.begin < shard.end) run_shard(t, &shard);
        if (clips_first) clip(t);
        if (m == synchronised || lesson_breaks(t->lesson, "every")) average_gradients(t);
        loss += shard.loss;
    }
    if (!clips_first) clip(t);
    ranks_run(t->group, pg_all_reduce(&loss, 1, PG_F64, PG_SUM));
    return loss / t->active;
}

// How many ranks have a batch? All of them must know, before they do anything else together.
static bool anyone_trains(Trainer *t, bool has_batch) {
    t->active = has_batch;
    ranks_run(t->group, pg_all_reduce(&t->active, 1, PG_F64, PG_SUM));
    return t->active > 0;
}
// ANCHOR_END: step

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
    Trainer trainer = {.lesson = &lesson, .micro_batches = 1};
    size_t uneven = 0;
    lesson_options(&lesson, "tutorial_16", SUMMARY,
                   "none|mean-of-means|first|every|clip-first|norm-twice|no-join|stale");
    options_add_count(&lesson.options, "micro-batches", &trainer.micro_batches, 1, 1e3,
                      "in a step");
    options_add_float(&lesson.options, "max-norm", &trainer.max_norm, 0, 1e9, "clip; 0: do not");
    options_add_count(&lesson.options, "uneven", &uneven, 0, 1e3,
                      "steps: rank r has r times as many less");
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);
    trainer.clip = grad_clip_open(&optimizer->parameters);
    size_t fewer = uneven * (size_t)trainer.me.rank;
    lesson.steps -= fewer < lesson.steps ? fewer : lesson.steps;

    size_t before = pg_sequence(trainer.group);
    for (const Batch *batch; anyone_trains(&trainer, (batch = lesson_next(&lesson)));) {
        if (!batch && lesson_breaks(&lesson, "no-join")) break;
        double loss = compute_gradients(&trainer, batch);
        if (!batch) continue; // this rank has joined
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    size_t count = pg_sequence(trainer.group) - before;
    if (!lesson.quiet) printf("collectives=%zu norm=%.6f\n", count, trainer.norm);
    if (uneven > 0 && !lesson_breaks(&lesson, "stale")) wrap(&trainer); // rank 0 trained longest
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    grad_clip_close(trainer.clip);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
