/* sixteen_bits.c: step 23: gradients are sent in 16 bits: bf16, or fp16 with a scale. */
#include <math.h>

#include "common/base/half.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

enum { WIRE_F32, WIRE_BF16, WIRE_FP16 }; // the words of --wire

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    bool expects_backward; // the last forward went through the wrapper
    const Lesson *lesson;
    double scale;           // fp16: gradients are multiplied by it before the all-reduce
    bool infinite;          // a mean gradient of this step is infinite or NaN
    size_t bytes, vanished; // sent by this rank; numbers that were rounded to 0
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

// ANCHOR: wires
static void average(Trainer *t, float *numbers, size_t count) {
    ranks_run(t->group, pg_all_reduce(numbers, count, PG_F32, PG_AVG));
    t->bytes += count * sizeof *numbers;
}

// The mean in 16 bits. Each rank divides by W before the all-reduce: the sum of W numbers in range
// could overflow.
static void average_in_16_bits(Trainer *t, float *numbers, size_t count) {
    bool fp16 = t->lesson->wire == WIRE_FP16;
    float scale = fp16 ? (float)t->scale : 1.0f, share = scale / (float)t->me.world_size;
    uint16_t *wire = tape_memory(t->tape, count * sizeof *wire);
    for (size_t i = 0; i < count; i++) {
        wire[i] = fp16 ? half_to_f16(numbers[i] * share) : half_to_bf16(numbers[i] * share);
        t->vanished += numbers[i] != 0.0f && (wire[i] & 0x7fff) == 0;
    }
    ranks_run(t->group, pg_all_reduce(wire, count, fp16 ? PG_F16 : PG_BF16, PG_SUM));
    t->bytes += count * sizeof *wire;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (fp16 ? half_from_f16(wire[i]) : half_from_bf16(wire[i])) / scale;
        t->infinite |= !isfinite(numbers[i]); // the same on all ranks
    }
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    t->infinite = false;
    for (size_t k = 0; t->expects_backward && k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        size_t count = tensor_count(tensor);
        if (!tensor->requires_grad) continue; // a buffer
        if (t->lesson->wire == WIRE_F32)
            average(t, tensor->grad, count);
        else
            average_in_16_bits(t, tensor->grad, count);
    }
    t->expects_backward = false;
}

// Returns whether to take the step; otherwise halves the scale for the next step.
static bool is_finite(Trainer *t, const Lesson *lesson) {
    if (!t->infinite) return true;
    printf("rank %d skips step %zu: scale %g\n", t->me.rank, lesson->step - 1, t->scale);
    t->scale /= 2;
    return false;
}
// ANCHOR_END: wires

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
    lesson_begin(&lesson, "sixteen-bits", argc, argv);
    trainer.scale = lesson.scale;
    trainer.group = ranks_join(&trainer.me, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        if (is_finite(&trainer, &lesson)) optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    if (trainer.me.rank == 0)
        printf("sent=%zu vanished=%zu\n", trainer.bytes / lesson.step, trainer.vanished);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
