/* shards.c: step 2: the batch is cut into shards, one after the other, and their gradients are
 * added up in order.
 *
 * Still one device and one thread. The gradient of a mean over all rows is the sum of what the
 * shards contribute, if every shard divides by the rows of the whole batch.
 */
#include <string.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"

static const char SUMMARY[] = "Step 2: trains on one device, shard by shard.\n"
                              "Example: tutorial_02 --shards 3 --epochs 2";

typedef struct Shard { // some rows of the batch, and what becomes of them
    const Batch *batch;
    size_t begin, end; // the rows
    size_t divisor;    // what their losses are divided by
    double loss;       // their contribution to the batch's
} Shard;

typedef struct Trainer {
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors; // the model's parameters and buffers
    float **sums; // [tensors.count], each as large as its tensor: the shards' gradients added up
    int shard_count;
    bool mean_of_means; // --break: every shard divides by its own rows
} Trainer;

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
    tape_reset(t->tape);
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

// ANCHOR: shards
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch, bool tell) {
    double loss = 0;
    for (int i = 0; i < t->shard_count; i++) {
        Shard shard = {.batch = batch, .divisor = batch->count};
        chunk_bounds(batch->count, (size_t)t->shard_count, (size_t)i, &shard.begin, &shard.end);
        size_t rows = shard.end - shard.begin;
        if (rows == 0) break; // more shards than rows
        if (t->mean_of_means) shard.divisor = rows * (size_t)t->shard_count;
        if (tell) printf("shard=%d rows=%zu a_row_counts=1/%zu\n", i, rows, shard.divisor);
        run_shard(t, &shard);
        loss += shard.loss;
        add_gradients(t, &t->tensors, i == 0);
    }
    install_gradients(t);
    return loss;
}
// ANCHOR_END: shards

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(0);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->sums = memory_zalloc(t->tensors.count * sizeof *t->sums);
    for (size_t k = 0; k < t->tensors.count; k++)
        t->sums[k] = memory_zalloc(tensor_bytes(t->tensors.items[k].tensor));
}

static void trainer_close(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) free(t->sums[k]);
    free(t->sums);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.shard_count = 2};
    lesson_options(&lesson, "tutorial_02", SUMMARY, "none|mean-of-means");
    options_add_int(&lesson.options, "shards", &trainer.shard_count, 1, 64,
                    "parts that a batch is cut into");
    lesson_begin(&lesson, argc, argv);
    trainer.mean_of_means = lesson_breaks(&lesson, "mean-of-means");
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch, lesson.step == 1);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
