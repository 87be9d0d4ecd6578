/* threads.c: step 3: each shard has a thread of its own.
 *
 * The threads read the same weights, which do not change meanwhile, and each writes gradients of
 * its own. When all have ended, the gradients are added up in the order of the shards, whichever
 * thread was first: so the sum has the same bits as in step 2.
 */
#include <pthread.h>
#include <string.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"

static const char SUMMARY[] = "Step 3: trains with a thread per shard, all on the same weights.\n"
                              "Example: tutorial_03 --shards 3 --epochs 2";

typedef struct Shard { // some rows of the batch, and what one thread needs to work on them
    const Batch *batch;
    size_t begin, end; // the rows
    size_t divisor;    // what their losses are divided by
    double loss;       // their contribution to the batch's
    pthread_t thread;
    Device *device; // whose memory the tape takes
    Tape *tape;
    Module *module; // the model's layers, with tensors whose gradients are this thread's own
    NamedTensors tensors;
} Shard;

typedef struct Trainer {
    Device *device;
    Module *model;
    NamedTensors tensors; // the model's parameters and buffers
    float **sums;  // [tensors.count], each as large as its tensor: the shards' gradients added up
    Shard *shards; // [shard_count]
    int shard_count;
    bool other_order; // --break: adds the last shard first
} Trainer;

// The shard reads the model's weights where they lie, and has no gradients yet.
static void share_weights(const Trainer *t, Shard *shard) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *mine = shard->tensors.items[k].tensor;
        const Tensor *shared = t->tensors.items[k].tensor;
        mine->data = shared->data;
        mine->grad = NULL; // the tape takes memory for it
        mine->has_grad = false;
        if (mine->requires_grad || shard == t->shards) continue;
        mine->data = tape_memory(shard->tape, tensor_bytes(shared)); // batch norm writes to these
        memcpy(mine->data, shared->data, tensor_bytes(shared));
    }
}

// A thread: leaves the gradients of the shard's rows in the shard's tensors.
static void *run_shard(void *argument) {
    Error err = {0};
    Shard *shard = argument;
    Rows rows = lesson_rows(shard->tape, shard->batch, shard->begin, shard->end);
    Tensor *outputs = module_forward(shard->module, shard->tape, rows.samples);
    Tensor *loss = lesson_loss(shard->tape, outputs, rows.target, shard->divisor);
    if (tape_error(shard->tape, &err) != 0) error_exit(&err);
    if (tape_backward(shard->tape, loss, &err) != 0) error_exit(&err);
    shard->loss = (double)tensor_item(loss);
    return NULL;
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

// ANCHOR: threads
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double loss = 0;
    int running = 0;
    for (int i = 0; i < t->shard_count; i++) {
        Shard *shard = &t->shards[i];
        shard->batch = batch;
        shard->divisor = batch->count;
        chunk_bounds(batch->count, (size_t)t->shard_count, (size_t)i, &shard->begin, &shard->end);
        if (shard->begin == shard->end) break; // more shards than rows
        share_weights(t, shard);
        CHECK(pthread_create(&shard->thread, NULL, run_shard, shard) == 0, "no thread %d", i);
        running++;
    }
    for (int i = 0; i < running; i++) pthread_join(t->shards[i].thread, NULL);
    for (int i = 0; i < running; i++) {
        Shard *shard = &t->shards[t->other_order ? running - 1 - i : i];
        loss += shard->loss;
        add_gradients(t, &shard->tensors, i == 0);
        tape_reset(shard->tape);
    }
    install_gradients(t);
    return loss;
}
// ANCHOR_END: threads

static void shard_open(Shard *shard, const Module *model, int index) {
    shard->device = lesson_device(index);
    shard->tape = tape_create(shard->device, NULL);
    shard->module = module_replica(model, shard->device);
    shard->tensors = module_tensors(shard->module, MODULE_STATE);
}

static void shard_close(Shard *shard) {
    named_tensors_free(&shard->tensors);
    module_close(shard->module);
    tape_close(shard->tape);
    device_close(shard->device);
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(0);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->sums = memory_zalloc(t->tensors.count * sizeof *t->sums);
    for (size_t k = 0; k < t->tensors.count; k++)
        t->sums[k] = memory_zalloc(tensor_bytes(t->tensors.items[k].tensor));
    t->shards = memory_zalloc((size_t)t->shard_count * sizeof *t->shards);
    for (int i = 0; i < t->shard_count; i++) shard_open(&t->shards[i], t->model, i);
}

static void trainer_close(Trainer *t) {
    for (int i = 0; i < t->shard_count; i++) shard_close(&t->shards[i]);
    free(t->shards);
    for (size_t k = 0; k < t->tensors.count; k++) free(t->sums[k]);
    free(t->sums);
    named_tensors_free(&t->tensors);
    module_close(t->model);
    device_close(t->device);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.shard_count = 2};
    lesson_options(&lesson, "tutorial_03", SUMMARY, "none|other-order");
    options_add_int(&lesson.options, "shards", &trainer.shard_count, 1, 64,
                    "parts that a batch is cut into, a thread for each");
    lesson_begin(&lesson, argc, argv);
    trainer.other_order = lesson_breaks(&lesson, "other-order");
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
