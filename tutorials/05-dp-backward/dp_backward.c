/* dp_backward.c: step 5: DataParallel, whole: backward copies in the opposite direction.
 * Only device_copy moves data between devices, and it counts the bytes.
 */
#include <pthread.h>

#include "tutorials/lesson.h"

typedef struct Shard { // some rows of the batch, and the device that works on them
    pthread_t thread;
    size_t begin, end; // the rows
    Tensor *x, *y;     // their part of the input and of the output
    Replica own;       // the model's layers on the device
} Shard;

typedef struct Trainer {
    Device *device; // the first device: holds the model, the loss and the optimizer
    Module *model;
    Tape *tape;
    const Lesson *lesson;
    NamedTensors tensors; // the model's parameters and buffers
    Shard shards[64];     // [lesson->devices]
    size_t running;       // shards with at least one row
} Trainer;

// ANCHOR: forward
// Cuts the batch, and copies each device's rows to it.
static void scatter(Trainer *t, const Tensor *x) {
    size_t rows = x->shape[0], row = tensor_count(x) / rows; // numbers in a row
    for (t->running = 0; t->running < t->lesson->devices; t->running++) {
        Shard *s = &t->shards[t->running];
        chunk_bounds(rows, t->lesson->devices, t->running, &s->begin, &s->end);
        if (s->begin == s->end) break; // more devices than rows
        size_t shape[] = {s->end - s->begin, x->shape[1], x->shape[2], x->shape[3]};
        s->x = tape_tensor(s->own.tape, DTYPE_F32, 4, shape);
        device_copy(s->own.device, s->x->data, t->device, tensor_f32(x) + s->begin * row,
                    tensor_bytes(s->x));
    }
}

// Copies the weights to the other devices, in every step. Replica 0 is the model itself.
static void replicate(Trainer *t) {
    for (size_t i = 0; i < t->running; i++) {
        Replica *r = &t->shards[i].own;
        for (size_t k = 0; k < t->tensors.count; k++) {
            const Tensor *original = t->tensors.items[k].tensor;
            Tensor *copy = r->tensors.items[k].tensor;
            copy->data = i == 0 ? original->data : tape_memory(r->tape, tensor_bytes(original));
            copy->grad = i == 0 ? original->grad : NULL; // NULL: the tape allocates it
            copy->has_grad = false;
            if (i == 0) continue;
            device_copy(r->device, copy->data, t->device, original->data, tensor_bytes(copy));
        }
    }
}

static void *run_forward(void *argument) {
    Shard *s = argument;
    s->y = module_forward(s->own.module, s->own.tape, s->x);
    return NULL;
}

// Runs all replicas in parallel, each in its own thread.
static void parallel_apply(Trainer *t, void *(*run)(void *shard)) {
    Error err = {0};
    for (size_t i = 0; i < t->running; i++)
        CHECK(pthread_create(&t->shards[i].thread, NULL, run, &t->shards[i]) == 0, "thread");
    for (size_t i = 0; i < t->running; i++) {
        pthread_join(t->shards[i].thread, NULL);
        if (tape_error(t->shards[i].own.tape, &err) != 0) error_exit(&err);
    }
}

// Copies the outputs to the first device, concatenated in the order of their rows.
static Tensor *gather(Trainer *t) {
    size_t shape[] = {t->shards[t->running - 1].end, t->shards[0].y->shape[1]};
    Tensor *outputs = tape_tensor(t->tape, DTYPE_F32, 2, shape);
    outputs->requires_grad = true; // for gather_backward
    for (size_t i = 0; i < t->running; i++) {
        const Shard *s = &t->shards[i];
        device_copy(t->device, tensor_f32(outputs) + s->begin * shape[1], s->own.device, s->y->data,
                    tensor_bytes(s->y));
    }
    return outputs;
}
// ANCHOR_END: forward

// ANCHOR: backward
// The reverse of gather: copies to each device the gradient of its rows of the outputs.
static void gather_backward(Trainer *t, const Tensor *outputs) {
    for (size_t i = 0; i < t->running; i++) {
        const Shard *s = &t->shards[i];
        device_copy(s->own.device, tape_make_grad(s->own.tape, s->y), t->device,
                    outputs->grad + s->begin * outputs->shape[1], tensor_bytes(s->y));
    }
}

static void *run_backward(void *argument) {
    Shard *s = argument;
    tape_backward(s->own.tape, s->y, NULL); // an error stays on the tape
    return NULL;
}

// Adds the other devices' gradients to the first one's: ((g0 + g1) + g2) + ...
static void replicate_backward(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *sum = t->tensors.items[k].tensor; // replica 0 has written g0 right here
        if (!sum->requires_grad) continue;        // a buffer
        sum->has_grad = true;
        for (size_t i = 1; i < t->running; i++) {
            const Tensor *part = t->shards[i].own.tensors.items[k].tensor;
            float *arrived = tape_scratch(t->tape, tensor_bytes(sum));
            device_copy(t->device, arrived, part->device, part->grad, tensor_bytes(sum));
            for (size_t j = 0; j < tensor_count(sum); j++) sum->grad[j] += arrived[j];
        }
    }
}
// ANCHOR_END: backward

// ANCHOR: step
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    scatter(t, rows.samples);
    replicate(t);
    parallel_apply(t, run_forward);
    Tensor *outputs = gather(t);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    gather_backward(t, outputs);
    parallel_apply(t, run_backward);
    replicate_backward(t);
    for (size_t i = 0; i < t->running; i++) tape_reset(t->shards[i].own.tape);
    tape_reset(t->tape);
    return value;
}
// ANCHOR_END: step

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(0);
    t->model = lesson_model(lesson, t->device, 0);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    for (size_t i = 0; i < lesson->devices; i++)
        lesson_replica_open(&t->shards[i].own, t->model,
                            i == 0 ? t->device : lesson_device((int)i));
}

static void trainer_close(Trainer *t) {
    tape_close(t->tape);
    named_tensors_free(&t->tensors);
    module_close(t->model);
    for (size_t i = 0; i < t->lesson->devices; i++) lesson_replica_close(&t->shards[i].own);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "dp-backward", argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        for (size_t i = 0; i < lesson.devices && lesson.step == 1; i++)
            lesson_print_bytes(trainer.shards[i].own.device);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
