/* threads.c: step 3: a thread for each shard; gradients are added up in the order of the shards. */
#include <pthread.h>

#include "tutorials/lesson.h"

// ANCHOR: shard
typedef struct Shard { // some rows of the batch, and one thread's own model, tape and device
    pthread_t thread;
    const Batch *batch;
    size_t begin, end; // the rows
    double loss;       // their part of the batch's mean loss
    Replica own;       // the model's layers, with its own tape and gradients
} Shard;
// ANCHOR_END: shard

typedef struct Trainer {
    Device *device;
    Module *model;
    const Lesson *lesson;
    NamedTensors tensors; // the model's parameters and buffers
    float **sums; // [tensors.count], each as large as its tensor: the shards' gradients added up
    Shard shards[64]; // [lesson->shards]
} Trainer;

// ANCHOR: threads
// A thread: leaves the gradients of the shard's rows in the replica.
static void *run_shard(void *argument) {
    Shard *shard = argument;
    Rows rows = lesson_rows(shard->own.tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = module_forward(shard->own.module, shard->own.tape, rows.samples);
    Tensor *loss = lesson_loss(shard->own.tape, outputs, rows.target, shard->batch->count);
    shard->loss = lesson_backward(shard->own.tape, loss);
    return NULL;
}
// ANCHOR_END: threads

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
        for (size_t i = 0; i < tensor_count(tensor); i++) tensor->grad[i] = t->sums[k][i];
        tensor->has_grad = true;
    }
}

// ANCHOR: loops
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double loss = 0;
    size_t running = 0;
    for (size_t i = 0; i < t->lesson->shards; i++) {
        Shard *shard = &t->shards[i];
        shard->batch = batch;
        chunk_bounds(batch->count, t->lesson->shards, i, &shard->begin, &shard->end);
        if (shard->begin == shard->end) break; // more shards than rows
        lesson_share_weights(&shard->own, &t->tensors, i == 0);
        CHECK(pthread_create(&shard->thread, NULL, run_shard, shard) == 0, "no thread %zu", i);
        running++;
    }
    for (size_t i = 0; i < running; i++) pthread_join(t->shards[i].thread, NULL);
    for (size_t i = 0; i < running; i++) {
        Shard *shard = &t->shards[i];
        loss += shard->loss;
        add_gradients(t, &shard->own.tensors, i == 0);
        tape_reset(shard->own.tape);
    }
    install_gradients(t);
    return loss;
}
// ANCHOR_END: loops

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(0);
    t->model = lesson_model(lesson, t->device, 0);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->sums = lesson_sums_create(&t->tensors);
    for (size_t i = 0; i < lesson->shards; i++)
        lesson_replica_open(&t->shards[i].own, t->model,
                            i == 0 ? t->device : lesson_device((int)i));
}

static void trainer_close(Trainer *t) {
    lesson_sums_close(t->sums, &t->tensors);
    named_tensors_free(&t->tensors);
    module_close(t->model);
    for (size_t i = 0; i < t->lesson->shards; i++) lesson_replica_close(&t->shards[i].own);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "threads", argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
