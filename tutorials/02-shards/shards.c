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

typedef struct Trainer {
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors parameters;
    float **sums; // [parameters.count], each as large as its parameter: the shards added up
    int shards;
    bool mean_of_means; // --break: every shard divides by its own rows
} Trainer;

// Leaves the gradients of some rows in the model, and returns their contribution to the loss.
static double shard_gradients(Trainer *t, const Batch *batch, size_t begin, size_t end,
                              size_t divisor) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, divisor);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    double value = (double)tensor_item(loss);
    tape_reset(t->tape);
    return value;
}

// sums = gradients for the first shard, sums += gradients for the others: ((g0 + g1) + g2) + ...
static void add_gradients(Trainer *t, bool first) {
    for (size_t k = 0; k < t->parameters.count; k++) {
        const Tensor *parameter = t->parameters.items[k].tensor;
        float *sum = t->sums[k];
        for (size_t i = 0; i < tensor_count(parameter); i++)
            sum[i] = first ? parameter->grad[i] : sum[i] + parameter->grad[i];
    }
}

// ANCHOR: shards
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch, bool tell) {
    double loss = 0;
    for (int shard = 0; shard < t->shards; shard++) {
        size_t begin, end, divisor = batch->count;
        chunk_bounds(batch->count, (size_t)t->shards, (size_t)shard, &begin, &end);
        if (begin == end) continue; // more shards than rows
        if (t->mean_of_means) divisor = (end - begin) * (size_t)t->shards;
        if (tell) printf("shard=%d rows=%zu a_row_counts=1/%zu\n", shard, end - begin, divisor);
        loss += shard_gradients(t, batch, begin, end, divisor);
        add_gradients(t, shard == 0);
    }
    for (size_t k = 0; k < t->parameters.count; k++) {
        Tensor *parameter = t->parameters.items[k].tensor;
        memcpy(parameter->grad, t->sums[k], tensor_bytes(parameter));
    }
    return loss;
}
// ANCHOR_END: shards

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = device_open("cpu:0", &err);
    if (!t->device) error_exit(&err);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->parameters = module_tensors(t->model, MODULE_PARAMETERS);
    t->sums = memory_zalloc(t->parameters.count * sizeof *t->sums);
    for (size_t k = 0; k < t->parameters.count; k++)
        t->sums[k] = memory_zalloc(tensor_bytes(t->parameters.items[k].tensor));
}

static void trainer_close(Trainer *t) {
    for (size_t k = 0; k < t->parameters.count; k++) free(t->sums[k]);
    free(t->sums);
    named_tensors_free(&t->parameters);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.shards = 2};
    lesson_options(&lesson, "tutorial_02", SUMMARY, "none|mean-of-means");
    options_add(&lesson.options, (Option){"shards", OPTION_INT, &trainer.shards, "N", 1, 64,
                                          "parts that a batch is cut into"});
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
