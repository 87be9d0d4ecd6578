/* data_parallel_by_hand.c: step 4: DataParallel: every shard has a device of its own.
 *
 * A device has its own memory, and the threads can no longer read the same weights: a step becomes
 * four operations forward and their counterparts backward. Nothing but device_copy crosses from one
 * device to another, and it counts the bytes.
 */
#include <pthread.h>

#include "common/base/memory.h"
#include "tutorials/lesson.h"

static const char SUMMARY[] = "Step 4: trains with DataParallel, written out.\n"
                              "Example: tutorial_04 --devices 3 --epochs 2";

typedef struct Replica { // the model on one device
    pthread_t thread;
    Device *device;
    Tape *tape;
    Module *module; // the model's layers, with tensors of this device
    NamedTensors tensors;
    size_t begin, end; // its rows of the batch
    Tensor *x, *y;     // its part of the input and of the output
} Replica;

typedef struct Trainer {
    Device *device; // the first one: here are the model, the loss and the optimizer
    Module *model;
    Tape *tape;
    NamedTensors tensors; // the model's parameters and buffers
    Replica *replicas;    // [device_count]
    int device_count;
    int running; // replicas that got rows
} Trainer;

// Cuts the batch, and copies each device's rows to it.
static void scatter(Trainer *t, const Tensor *x) {
    size_t rows = x->shape[0], row = tensor_count(x) / rows; // numbers in a row
    for (t->running = 0; t->running < t->device_count; t->running++) {
        Replica *r = &t->replicas[t->running];
        chunk_bounds(rows, (size_t)t->device_count, (size_t)t->running, &r->begin, &r->end);
        if (r->begin == r->end) break; // more devices than rows
        size_t shape[] = {r->end - r->begin, x->shape[1], x->shape[2], x->shape[3]};
        r->x = tape_tensor(r->tape, DTYPE_F32, 4, shape);
        device_copy(r->device, r->x->data, t->device, tensor_f32(x) + r->begin * row,
                    tensor_bytes(r->x));
    }
}

// Copies the weights to the other devices, in every step anew. Replica 0 is the model itself.
static void replicate(Trainer *t) {
    for (int i = 0; i < t->running; i++) {
        Replica *r = &t->replicas[i];
        for (size_t k = 0; k < t->tensors.count; k++) {
            const Tensor *original = t->tensors.items[k].tensor;
            Tensor *copy = r->tensors.items[k].tensor;
            copy->data = i == 0 ? original->data : tape_memory(r->tape, tensor_bytes(original));
            copy->grad = i == 0 ? original->grad : NULL; // NULL: the tape takes memory for it
            copy->has_grad = false;
            if (i == 0) continue;
            device_copy(r->device, copy->data, t->device, original->data, tensor_bytes(copy));
        }
    }
}

static void *run_forward(void *argument) {
    Replica *r = argument;
    r->y = module_forward(r->module, r->tape, r->x);
    return NULL;
}

static void *run_backward(void *argument) {
    Replica *r = argument;
    tape_backward(r->tape, r->y, NULL); // an error stays on the tape
    return NULL;
}

// Lets every replica run at once, each in its own thread.
static void parallel_apply(Trainer *t, void *(*run)(void *replica)) {
    Error err = {0};
    for (int i = 0; i < t->running; i++)
        CHECK(pthread_create(&t->replicas[i].thread, NULL, run, &t->replicas[i]) == 0, "thread");
    for (int i = 0; i < t->running; i++) {
        pthread_join(t->replicas[i].thread, NULL);
        if (tape_error(t->replicas[i].tape, &err) != 0) error_exit(&err);
    }
}

// Copies the outputs to the first device, one below the other.
static Tensor *gather(Trainer *t) {
    size_t shape[] = {t->replicas[t->running - 1].end, t->replicas[0].y->shape[1]};
    Tensor *outputs = tape_tensor(t->tape, DTYPE_F32, 2, shape);
    outputs->requires_grad = true; // for gather_backward
    for (int i = 0; i < t->running; i++) {
        const Replica *r = &t->replicas[i];
        device_copy(t->device, tensor_f32(outputs) + r->begin * shape[1], r->device, r->y->data,
                    tensor_bytes(r->y));
    }
    return outputs;
}

// The other way round: each device gets the gradient of its own rows of the outputs.
static void gather_backward(Trainer *t, const Tensor *outputs) {
    for (int i = 0; i < t->running; i++) {
        const Replica *r = &t->replicas[i];
        device_copy(r->device, tape_make_grad(r->tape, r->y), t->device,
                    outputs->grad + r->begin * outputs->shape[1], tensor_bytes(r->y));
    }
}

// Adds the other devices' gradients to the first one's: ((g0 + g1) + g2) + ...
static void replicate_backward(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *sum = t->tensors.items[k].tensor; // replica 0 has written g0 right here
        if (!sum->requires_grad) continue;        // a buffer
        sum->has_grad = true;
        for (int i = 1; i < t->running; i++) {
            const Tensor *part = t->replicas[i].tensors.items[k].tensor;
            float *arrived = tape_scratch(t->tape, tensor_bytes(sum));
            device_copy(t->device, arrived, part->device, part->grad, tensor_bytes(sum));
            for (size_t j = 0; j < tensor_count(sum); j++) sum->grad[j] += arrived[j];
        }
    }
}

// ANCHOR: step
// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Error err = {0};
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    scatter(t, rows.samples);
    replicate(t);
    parallel_apply(t, run_forward);
    Tensor *outputs = gather(t);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    gather_backward(t, outputs);
    parallel_apply(t, run_backward);
    replicate_backward(t);
    double value = (double)tensor_item(loss);
    for (int i = 0; i < t->running; i++) tape_reset(t->replicas[i].tape);
    tape_reset(t->tape);
    return value;
}
// ANCHOR_END: step

static void replica_open(Replica *r, const Module *model, Device *device) {
    r->device = device;
    r->tape = tape_create(device, NULL);
    r->module = module_replica(model, device);
    r->tensors = module_tensors(r->module, MODULE_STATE);
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(0);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, 0, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->replicas = memory_zalloc((size_t)t->device_count * sizeof *t->replicas);
    for (int i = 0; i < t->device_count; i++)
        replica_open(&t->replicas[i], t->model, i == 0 ? t->device : lesson_device(i));
}

static void trainer_close(Trainer *t) {
    tape_close(t->tape);
    named_tensors_free(&t->tensors);
    module_close(t->model);
    for (int i = 0; i < t->device_count; i++) {
        named_tensors_free(&t->replicas[i].tensors);
        module_close(t->replicas[i].module);
        tape_close(t->replicas[i].tape);
        device_close(t->replicas[i].device);
    }
    free(t->replicas);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.device_count = 2};
    lesson_options(&lesson, "tutorial_04", SUMMARY, "none");
    options_add_int(&lesson.options, "devices", &trainer.device_count, 1, 64,
                    "devices, a replica of the model on each");
    lesson_begin(&lesson, argc, argv);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        for (int i = 0; i < trainer.device_count && lesson.step == 1; i++)
            lesson_print_bytes(trainer.replicas[i].device);
    }

    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
