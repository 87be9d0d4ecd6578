/* metrics.c: step 14: all ranks evaluate, and every row of the test set counts once.
 *
 * Each rank looks at its own part of the test set and counts what it sees into a confusion matrix.
 * Counts may be added: one sum over the ranks, and everything that is to be known of the network is
 * computed from it, exactly as one rank would have found it.
 */
#include "common/base/memory.h"
#include "ddp/distributed_sampler.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 14: trains, and then evaluates on all ranks.\n"
                              "Example: ddprun --nproc-per-node 4 tutorial_14 --epochs 2";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

enum { BATCH = 64 }; // rows at a time in evaluation

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
static void run_shard(const Trainer *t, Shard *shard) {
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

// What stands on the diagonal was answered right.
static double accuracy_of(const double *counts, size_t classes) {
    double right = 0, all = 0;
    for (size_t i = 0; i < classes * classes; i++) all += counts[i];
    for (size_t c = 0; c < classes; c++) right += counts[c * classes + c];
    return right / all;
}

// ANCHOR: evaluation
// The rows of the test set that this rank looks at.
static Sampler *own_rows(const Trainer *t, const Lesson *lesson, size_t count) {
    Error err = {0};
    int world = t->me.world_size, rank = t->me.rank;
    if (lesson_breaks(lesson, "rank-0-alone"))
        return sampler_evaluation(rank == 0 ? count : 0, BATCH, 1, 0);
    if (!lesson_breaks(lesson, "padded")) return sampler_evaluation(count, BATCH, world, rank);
    Sampler *training = distributed_sampler(count, BATCH * (size_t)world, world, rank, false, false,
                                            0, &err); // the same number of rows for every rank
    return training ? training : (error_exit(&err), NULL);
}

// Adds to counts[truth * classes + answer] what this rank's rows are and are taken for.
static void count_answers(const Trainer *t, const Lesson *lesson, double *counts) {
    Error err = {0};
    const Dataset *set = &lesson->data->test;
    Sampler *sampler = own_rows(t, lesson, set->count);
    Loader *loader = loader_create(set, sampler, NULL, 0, lesson->host);
    t->tape->recording = t->tape->training = false;
    printf("rank %d looks at %zu rows\n", t->me.rank, sampler->start[sampler->batch_count]);
    loader_start(loader, 0, 0);
    for (const Batch *batch; (batch = loader_next(loader)); tape_reset(t->tape)) {
        Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
        Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
        if (tape_error(t->tape, &err) != 0) error_exit(&err);
        for (size_t row = 0; row < batch->count; row++)
            counts[(size_t)batch->labels[row] * set->classes + lesson_answer(outputs, row)]++;
    }
    loader_close(loader);
    sampler_close(sampler);
}

static void evaluate(const Trainer *t, const Lesson *lesson) {
    size_t classes = lesson->data->test.classes, count = classes * classes;
    double rows = 0, *counts = memory_zalloc(count * sizeof *counts); // exact up to 2^53
    count_answers(t, lesson, counts);
    double own = accuracy_of(counts, classes);
    ranks_run(t->group, pg_all_reduce(counts, count, PG_F64, PG_SUM));
    ranks_run(t->group, pg_all_reduce(&own, 1, PG_F64, PG_AVG));
    for (size_t i = 0; i < count; i++) {
        rows += counts[i];
        if (!lesson->quiet) printf((i + 1) % classes ? "%4.0f" : "%4.0f\n", counts[i]);
    }
    double accuracy = lesson_breaks(lesson, "mean-of-ranks") ? own : accuracy_of(counts, classes);
    if (!lesson->quiet) printf("counted=%.0f accuracy=%.6f\n", rows, accuracy);
    free(counts);
}
// ANCHOR_END: evaluation

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
    bool only_test = false;
    lesson_options(&lesson, "tutorial_14", SUMMARY, "none|padded|mean-of-ranks|rank-0-alone");
    options_add(&lesson.options, (Option){"only-test", OPTION_FLAG, &only_test, NULL, 0, 0,
                                          "evaluate the first weights (--load-init), and end"});
    lesson_begin(&lesson, argc, argv);
    lesson.config.no_eval = true; // rank 0 alone; here all do
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; !only_test && (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    evaluate(&trainer, &lesson);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
