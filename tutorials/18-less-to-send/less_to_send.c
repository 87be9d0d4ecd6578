/* less_to_send.c: step 18: gradients that travel with fewer bytes.
 *
 * Step 8, with other ways to average: in the 16 bits of bf16, or of fp16, whose small range needs a
 * scale and a joint decision; or each matrix as a column times a row (PowerSGD of rank 1).
 */
#include <math.h>

#include "common/base/half.h"
#include "common/base/memory.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 18: sends gradients with fewer bytes.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_18 --wire bf16";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

typedef enum Wire { WIRE_F32, WIRE_BF16, WIRE_FP16, WIRE_RANK_1 } Wire;

typedef struct Shard { // some rows of the batch, and what becomes of them
    const Batch *batch;
    size_t begin, end; // the rows
    size_t divisor;    // what their losses are divided by
    double loss;       // their contribution to the batch's
} Shard;

typedef struct Trainer {
    Rendezvous me; // which rank this is, and of how many
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;   // the model's parameters and buffers
    Wire wire;              // how gradients travel
    double scale;           // fp16: they are multiplied by this before, and divided after
    bool own_inf, lossy;    // --break: each rank looks for itself; what was not sent is lost
    bool infinite;          // a gradient of this step has no finite number any more
    float **errors, **rows; // [tensors.count]: what was not sent yet [n, m]; the last rows [m]
    size_t bytes, vanished; // sent by this rank; numbers that became 0 on the way
} Trainer;

// ANCHOR: wires
static void average(Trainer *t, float *numbers, size_t count) {
    ranks_run(t->group, pg_all_reduce(numbers, count, PG_F32, PG_AVG));
    t->bytes += count * sizeof *numbers;
}

// Divides before it adds, so that the sum stays in fp16's range; the sum is rounded once more.
static void average_in_16_bits(Trainer *t, float *numbers, size_t count) {
    bool fp16 = t->wire == WIRE_FP16;
    float scale = fp16 ? (float)t->scale : 1.0f, share = scale / (float)t->me.world_size;
    uint16_t *wire = tape_memory(t->tape, count * sizeof *wire);
    for (size_t i = 0; i < count; i++) {
        wire[i] = fp16 ? half_to_f16(numbers[i] * share) : half_to_bf16(numbers[i] * share);
        t->vanished += numbers[i] != 0.0f && (wire[i] & 0x7fff) == 0;
        if (t->own_inf) t->infinite |= fp16 && !isfinite(half_from_f16(wire[i]));
    }
    ranks_run(t->group, pg_all_reduce(wire, count, fp16 ? PG_F16 : PG_BF16, PG_SUM));
    t->bytes += count * sizeof *wire;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (fp16 ? half_from_f16(wire[i]) : half_from_bf16(wire[i])) / scale;
        if (!t->own_inf) t->infinite |= !isfinite(numbers[i]); // the same on all ranks
    }
}

// g [n, m] becomes column [n] times row [m], the nearest such product to the mean of the ranks' g.
static void average_rank_1(Trainer *t, float *g, size_t n, size_t m, float *error, float *row) {
    float *column = tape_memory(t->tape, n * sizeof *column), length = 0;
    for (size_t i = 0; i < n; i++) {
        column[i] = 0;
        for (size_t j = 0; j < m; j++) column[i] += (g[i * m + j] += error[i * m + j]) * row[j];
    }
    average(t, column, n);
    for (size_t i = 0; i < n; i++) length += column[i] * column[i];
    for (size_t i = 0; i < n; i++) column[i] /= sqrtf(length) + 1e-30f;
    for (size_t j = 0; j < m; j++) row[j] = 0;
    for (size_t i = 0; i < n * m; i++) row[i % m] += g[i] * column[i / m];
    average(t, row, m);
    for (size_t i = 0; i < n * m; i++) {
        float sent = column[i / m] * row[i % m];
        error[i] = t->lossy ? 0 : g[i] - sent;
        g[i] = sent;
    }
}

static void average_gradients(Trainer *t) {
    t->infinite = false;
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        size_t count = tensor_count(tensor), n = tensor->shape[0];
        if (!tensor->requires_grad) continue; // it is a buffer
        if (t->wire == WIRE_RANK_1 && tensor->ndim > 1)
            average_rank_1(t, tensor->grad, n, count / n, t->errors[k], t->rows[k]);
        else if (t->wire == WIRE_BF16 || t->wire == WIRE_FP16)
            average_in_16_bits(t, tensor->grad, count);
        else
            average(t, tensor->grad, count);
    }
}

// Whether to take the step. If not, the next one is tried with half of the scale.
static bool is_finite(Trainer *t, const Lesson *lesson) {
    if (!t->infinite) return true;
    printf("rank %d skips step %zu: scale %g\n", t->me.rank, lesson->step - 1, t->scale);
    t->scale /= 2;
    return false;
}
// ANCHOR_END: wires

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
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Shard shard = {.batch = batch};
    chunk_bounds(batch->count, (size_t)t->me.world_size, (size_t)t->me.rank, &shard.begin,
                 &shard.end);
    shard.divisor = shard.end - shard.begin; // each rank takes the mean of its own rows
    run_shard(t, &shard);
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&shard.loss, 1, PG_F64, PG_AVG));
    return shard.loss;
}

// Learns from the environment which rank this is, and meets the others.
static void join(Trainer *t) {
    Error err = {0};
    if (init_from_env(&t->me, true, &err) != 0) error_exit(&err); // without a launcher: alone
    t->group = init_process_group("shm", &t->me, NULL, TIMEOUT_S, &err);
    if (!t->group) error_exit(&err);
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(t->me.local_rank);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, t->me.rank, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    t->errors = memory_zalloc(t->tensors.count * sizeof *t->errors);
    t->rows = memory_zalloc(t->tensors.count * sizeof *t->rows);
    for (size_t k = 0; k < t->tensors.count; k++) {
        const Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
        t->errors[k] = memory_zalloc(tensor_bytes(tensor));
        t->rows[k] = memory_zalloc(tensor_bytes(tensor));
        for (size_t j = 0; j < tensor_count(tensor); j++) t->rows[k][j] = 1; // the same on all
    }
}

static void trainer_close(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) free(t->errors[k]), free(t->rows[k]);
    free(t->errors), free(t->rows);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.scale = 65536};
    lesson_options(&lesson, "tutorial_18", SUMMARY, "none|own-inf|no-feedback");
    options_add(&lesson.options, (Option){"wire", OPTION_ENUM, &trainer.wire,
                                          "f32|bf16|fp16|rank-1", 0, 0, "how gradients travel"});
    options_add(&lesson.options, (Option){"scale", OPTION_FLOAT, &trainer.scale, "S", 1, 1e30,
                                          "fp16: gradients are multiplied by this on the way"});
    lesson_begin(&lesson, argc, argv);
    trainer.own_inf = lesson_breaks(&lesson, "own-inf");
    trainer.lossy = lesson_breaks(&lesson, "no-feedback");
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
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
