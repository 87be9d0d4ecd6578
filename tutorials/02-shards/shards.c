/* shards.c: step 2: a batch is cut into shards, whose gradients are added up in order. */
#include "tutorials/lesson.h"

typedef struct Trainer {
    Device *device;
    Module *model;
    Tape *tape;
    const Lesson *lesson;
    NamedTensors tensors; // the model's parameters and buffers
    float **sums; // [tensors.count], each as large as its tensor: the shards' gradients added up
} Trainer;

// ANCHOR: shards
// Leaves the gradients of the rows [begin, end) in the model, and returns their part of the loss.
static double run_shard(Trainer *t, const Batch *batch, size_t begin, size_t end, size_t divisor) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, begin, end);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, divisor);
    double value = lesson_backward(t->tape, loss);
    tape_reset(t->tape);
    return value;
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
        for (size_t i = 0; i < tensor_count(tensor); i++) tensor->grad[i] = t->sums[k][i];
        tensor->has_grad = true;
    }
}

// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    double loss = 0;
    for (size_t i = 0; i < t->lesson->shards; i++) {
        size_t begin, end, divisor = batch->count;
        chunk_bounds(batch->count, t->lesson->shards, i, &begin, &end);
        if (begin == end) break; // more shards than rows
        lesson_print_shard(t->lesson, i, end - begin, divisor);
        loss += run_shard(t, batch, begin, end, divisor);
        add_gradients(t, &t->tensors, i == 0);
    }
    install_gradients(t);
    return loss;
}
// ANCHOR_END: shards

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(0);
    t->model = lesson_model(lesson, t->device, 0);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->sums = lesson_sums_create(&t->tensors);
}

static void trainer_close(Trainer *t) {
    lesson_sums_close(t->sums, &t->tensors);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "shards", argc, argv);
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
