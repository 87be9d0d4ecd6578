/* metrics.c: step 16: all ranks evaluate, and every row of the test set counts once. */
#include "common/base/memory.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    bool expects_backward; // the last forward went through the wrapper
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward: records that the gradients of its backward must be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    return module_forward(t->model, t->tape, x);
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; t->expects_backward && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // a buffer has no gradient
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
    t->expects_backward = false;
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    size_t begin, end;
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &begin, &end);
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, rows.count); // this rank's mean
    double value = lesson_backward(t->tape, loss);
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_AVG));
    return value;
}

// ANCHOR: evaluation
// Adds this rank's rows of the test set to counts[truth * classes + answer].
static void count_answers(const Trainer *t, const Lesson *lesson, double *counts) {
    const Dataset *set = &lesson->data->test;
    Sampler *own = sampler_evaluation(set->count, 64, t->me.world_size, t->me.rank);
    Loader *loader = loader_create(set, own, NULL, 0, lesson->host);
    t->tape->recording = t->tape->training = false;
    printf("rank %d looks at %zu rows\n", t->me.rank, own->start[own->batch_count]);
    loader_start(loader, 0, 0);
    for (const Batch *batch; (batch = loader_next(loader)); tape_reset(t->tape)) {
        Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
        Tensor *outputs = lesson_forward(t->model, t->tape, rows.samples);
        for (size_t row = 0; row < batch->count; row++)
            counts[(size_t)batch->labels[row] * set->classes + lesson_answer(outputs, row)]++;
    }
    loader_close(loader);
    sampler_close(own);
}

// The diagonal counts the right answers.
static double accuracy_of(const double *counts, size_t classes) {
    double right = 0, all = 0;
    for (size_t i = 0; i < classes * classes; i++) all += counts[i];
    for (size_t c = 0; c < classes; c++) right += counts[c * classes + c];
    return right / all;
}

static void evaluate(const Trainer *t, const Lesson *lesson) {
    size_t classes = lesson->data->test.classes, count = classes * classes;
    double *counts = memory_zalloc(count * sizeof *counts); // exact up to 2^53
    count_answers(t, lesson, counts);
    ranks_run(t->group, pg_all_reduce(counts, count, PG_F64, PG_SUM));
    lesson_print_counts(lesson, counts, classes, accuracy_of(counts, classes));
    free(counts);
}
// ANCHOR_END: evaluation

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, t->me.rank);
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
    lesson_begin(&lesson, "metrics", argc, argv);
    lesson.config.no_eval = true; // lesson_end would evaluate on rank 0 alone
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; !lesson.only_test && (batch = lesson_next(&lesson));) {
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
