/* checkpoints.c: step 17: stop, and resume with the same bits. */
#include <unistd.h>

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
    const Lesson *lesson;
    Optimizer *optimizer;
    size_t steps; // done so far
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

// ANCHOR: checkpoint
static void transfer(Trainer *t, FILE *file, bool saves, void *data, size_t bytes) {
    size_t done = saves ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    lesson_need(done == bytes, t->lesson->checkpoint, "is not a whole checkpoint");
}

// Transfers the whole state on which the next step depends.
static void transfer_all(Trainer *t, FILE *file, bool saves) {
    const Optimizer *optimizer = t->optimizer;
    size_t count = optimizer->parameters.count;
    transfer(t, file, saves, &t->steps, sizeof t->steps);
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        transfer(t, file, saves, tensor->data, tensor_bytes(tensor));
    }
    if (saves && t->steps == t->lesson->kill_at) _exit(137); // amid the file, as if killed
    for (size_t i = 0; i < 2 * count; i++) {                 // momentum, or Adam's two averages
        float *state = optimizer->state[i / count][i % count];
        size_t bytes = tensor_bytes(optimizer->parameters.items[i % count].tensor);
        if (state) transfer(t, file, saves, state, bytes);
    }
    transfer(t, file, saves, optimizer->steps, count * sizeof *optimizer->steps);
}

// Rank 0 writes FILE.new, and renames it to FILE when it is complete. The others wait.
static void save(Trainer *t) {
    char name[1024];
    snprintf(name, sizeof name, "%s.new", t->lesson->checkpoint);
    if (t->me.rank == 0) {
        FILE *file = fopen(name, "wb");
        lesson_need(file != NULL, name, "cannot be opened");
        transfer_all(t, file, true);
        bool whole = fflush(file) == 0 && fsync(fileno(file)) == 0 && fclose(file) == 0;
        whole = whole && rename(name, t->lesson->checkpoint) == 0;
        lesson_need(whole, name, "cannot be written");
    }
    ranks_run(t->group, pg_barrier());
}

// Every rank reads the file itself, if it exists.
static void load(Trainer *t) {
    FILE *file = t->lesson->checkpoint ? fopen(t->lesson->checkpoint, "rb") : NULL;
    if (!file) return;
    transfer_all(t, file, false);
    fclose(file);
}
// ANCHOR_END: checkpoint

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
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "checkpoints", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = trainer.optimizer = lesson_optimizer(&lesson, trainer.model);

    load(&trainer);
    lesson_skip(&lesson, trainer.steps);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
        if (++trainer.steps % 10 == 0 && lesson.checkpoint) save(&trainer);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
