/* powersgd.c: step 24: a matrix of gradients is sent as a column times a row: PowerSGD. */
#include <math.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;   // the model's parameters and buffers
    bool expects_backward;  // the last forward went through the wrapper
    float **errors, **rows; // of each matrix [n, m]: the unsent part [n, m]; the last row [m]
    size_t bytes, messages; // of this rank's all-reduces
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

// ANCHOR: powersgd
static void average(Trainer *t, float *numbers, size_t count) {
    ranks_run(t->group, pg_all_reduce(numbers, count, PG_F32, PG_AVG));
    t->bytes += count * sizeof *numbers;
    t->messages++;
}

// g [n, m] becomes column [n] times row [m], which approximates the mean of the ranks' g + error.
static void average_as_product(Trainer *t, float *g, size_t n, size_t m, float *error, float *row) {
    float *column = tape_memory(t->tape, n * sizeof *column), norm = 0;
    for (size_t i = 0; i < n; i++) column[i] = 0;
    for (size_t i = 0; i < n * m; i++) g[i] += error[i];
    for (size_t i = 0; i < n * m; i++) column[i / m] += g[i] * row[i % m]; // g times row
    average(t, column, n);
    for (size_t i = 0; i < n; i++) norm += column[i] * column[i];
    for (size_t i = 0; i < n; i++) column[i] /= sqrtf(norm) + 1e-30f; // its length is 1
    for (size_t j = 0; j < m; j++) row[j] = 0;
    for (size_t i = 0; i < n * m; i++) row[i % m] += g[i] * column[i / m]; // column times g
    average(t, row, m);
    for (size_t i = 0; i < n * m; i++) {
        float sent = column[i / m] * row[i % m];
        error[i] = g[i] - sent;
        g[i] = sent;
    }
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t k = 0; t->expects_backward && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        size_t count = tensor_count(tensor), n = tensor->shape[0];
        if (!tensor->requires_grad) continue; // a buffer
        if (tensor->ndim > 1)
            average_as_product(t, tensor->grad, n, count / n, t->errors[k], t->rows[k]);
        else
            average(t, tensor->grad, count);
    }
    t->expects_backward = false;
}
// ANCHOR_END: powersgd

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

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, t->me.rank);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->errors = lesson_sums_create(&t->tensors);
    t->rows = lesson_sums_create(&t->tensors);
    for (size_t k = 0; k < t->tensors.count; k++) // the first row is the same on all ranks
        for (size_t j = 0; j < tensor_count(t->tensors.items[k].tensor); j++) t->rows[k][j] = 1;
    wrap(t);
}

static void trainer_close(Trainer *t) {
    lesson_sums_close(t->errors, &t->tensors);
    lesson_sums_close(t->rows, &t->tensors);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "powersgd", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    if (trainer.me.rank == 0)
        printf("sent=%zu messages=%zu\n", trainer.bytes / lesson.step,
               trainer.messages / lesson.step);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
