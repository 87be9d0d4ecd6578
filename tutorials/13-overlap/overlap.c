/* overlap.c: step 13: a full bucket is reduced while backward computes the next gradients. */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

enum { MOST_PARAMETERS = 128 };

typedef struct Bucket { // gradients that are reduced together
    Tensor **members;   // [member_count], parameters: a range of the trainer's
    size_t member_count;
    size_t count;  // floats in the buffer
    float *buffer; // [count], the members' gradients, concatenated
    struct Trainer *trainer;
    size_t pending; // gradients that are not complete
    PgWork *work;   // the all-reduce, after its start
} Bucket;

typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;  // the model's parameters and buffers
    bool expects_backward; // the last forward went through the wrapper
    const Lesson *lesson;
    Tensor *parameters[MOST_PARAMETERS]; // trainable parameters, in reverse order
    float *flat;                         // memory of all buckets
    Bucket buckets[MOST_PARAMETERS];
    size_t bucket_count;
    size_t started; // buckets started in this step
} Trainer;

// Assigns the gradients to buckets, the last gradient first: backward completes it first.
static void make_buckets(Trainer *t) {
    Bucket *bucket = NULL;
    size_t count = 0, floats = 0;
    t->flat = lesson_flat_create(&t->tensors);
    CHECK(t->tensors.count <= MOST_PARAMETERS, "%zu tensors are too many", t->tensors.count);
    for (size_t k = t->tensors.count; k-- > 0;) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad) continue; // a buffer, or frozen
        if (!bucket || bucket->count * sizeof(float) >= t->lesson->bucket_bytes) {
            bucket = &t->buckets[t->bucket_count++];
            *bucket = (Bucket){.members = t->parameters + count, .buffer = t->flat + floats};
            bucket->trainer = t;
        }
        t->parameters[count++] = tensor;
        bucket->member_count++;
        bucket->count += tensor_count(tensor);
        floats += tensor_count(tensor);
    }
}

// ANCHOR: overlap
// Starts the all-reduces of full buckets by ascending number, the same order on all ranks.
static int start_full_buckets(Trainer *t, Error *err) {
    for (; t->started < t->bucket_count; t->started++) {
        Bucket *bucket = &t->buckets[t->started];
        if (bucket->pending > 0) return 0;
        lesson_show(t->lesson, "  bucket %zu starts\n", (size_t)(bucket - t->buckets));
        lesson_pack_gradients(bucket->members, bucket->member_count, bucket->buffer);
        Collective mean = pg_all_reduce(bucket->buffer, bucket->count, PG_F32, PG_AVG);
        bucket->work = pg_start(t->group, mean, err);
        if (!bucket->work) return -1;
    }
    return 0;
}

// The hook: the tensor's gradient is complete. Backward continues when the hook returns.
static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    Bucket *bucket = context;
    Trainer *t = bucket->trainer;
    if (!t->expects_backward) return 0;
    lesson_show(t->lesson, "a gradient of %zu bytes\n", tensor_bytes(tensor));
    bucket->pending--;
    return start_full_buckets(t, err);
}

// Wrapping: the weights and buffers of all ranks become rank 0's, and gradients get hooks. Once.
static void wrap(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
    for (size_t b = 0; b < t->bucket_count; b++)
        lesson_hook(t->buckets[b].members, t->buckets[b].member_count, gradient_ready,
                    &t->buckets[b]);
}

// The wrapper's forward: records that the gradients of its backward must be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    t->started = 0;
    for (size_t b = 0; b < t->bucket_count; b++) t->buckets[b].pending = t->buckets[b].member_count;
    return module_forward(t->model, t->tape, x);
}

// After backward: waits for the means, and copies them back.
static void finish_gradients(Trainer *t) {
    Error err = {0};
    lesson_show(t->lesson, "backward is over\n");
    for (size_t b = 0; b < t->started; b++) {
        const Bucket *bucket = &t->buckets[b];
        if (pg_work_wait(bucket->work, NULL, NULL, &err) != 0) error_exit(&err);
        lesson_unpack_gradients(bucket->members, bucket->member_count, bucket->buffer);
        lesson_show(t->lesson, "  bucket %zu has arrived\n", b);
    }
    t->expects_backward = false;
}
// ANCHOR_END: overlap

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    finish_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&value, 1, PG_F64, PG_AVG));
    return value;
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, t->me.rank);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    make_buckets(t);
    wrap(t);
}

static void trainer_close(Trainer *t) {
    free(t->flat);
    named_tensors_free(&t->tensors);
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {.lesson = &lesson};
    lesson_begin(&lesson, "overlap", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    ranks_share_samples(trainer.group, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
