/* overlap.c: step 11: gradients travel while backward computes the next ones.
 *
 * Each parameter has a hook, which backward calls when the gradient is complete. When the last one
 * of a bucket is, the bucket's all-reduce is started, and backward continues.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 11: buckets are reduced while backward runs.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_11 --epochs 2";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

enum { MOST_PARAMETERS = 128 };

typedef struct Bucket { // gradients that are reduced together
    Tensor **members;   // parameters, some of the trainer's
    size_t member_count;
    size_t count;   // of floats
    float *buffer;  // in this step
    size_t pending; // gradients that are not complete
    PgWork *work;   // the all-reduce, once it is started
    struct Trainer *trainer;
} Bucket;

typedef struct Trainer {
    Rendezvous me; // which rank this is, and of how many
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
    NamedTensors tensors;                // the model's parameters and buffers
    bool expects_backward;               // the last forward went through the wrapper
    size_t bucket_bytes;                 // a bucket that holds so many is full
    Tensor *parameters[MOST_PARAMETERS]; // those that are trained, the last one first
    Bucket buckets[MOST_PARAMETERS];
    size_t bucket_count;
    size_t started;       // buckets, in this step
    bool waits, reversed; // --break: until backward is over; the last bucket comes first
    bool tells;           // prints what happens in this step
} Trainer;

// Cuts the gradients into buckets, beginning with the last one: backward has it first.
static void make_buckets(Trainer *t) {
    Bucket *bucket = NULL;
    size_t count = 0;
    CHECK(t->tensors.count <= MOST_PARAMETERS, "%zu tensors are too many", t->tensors.count);
    for (size_t k = t->tensors.count; k-- > 0;) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (!tensor->requires_grad) continue; // a buffer, or frozen
        if (!bucket || bucket->count * sizeof(float) >= t->bucket_bytes) {
            bucket = &t->buckets[t->bucket_count++];
            *bucket = (Bucket){.members = t->parameters + count, .trainer = t};
        }
        t->parameters[count++] = tensor;
        bucket->member_count++;
        bucket->count += tensor_count(tensor);
    }
}

// Copies a bucket's gradients one after the other to a place, or back from there.
static void copy_gradients(const Trainer *t, const Bucket *bucket, float *place, bool back) {
    for (size_t i = 0; i < bucket->member_count; i++) {
        Tensor *tensor = bucket->members[i];
        device_copy(t->device, back ? tensor->grad : place, t->device, back ? place : tensor->grad,
                    tensor_bytes(tensor));
        place += tensor_count(tensor);
    }
}

// ANCHOR: overlap
// Starts what is full, in the order of the buckets: that is the same on all ranks.
static int start_full_buckets(Trainer *t, Error *err) {
    for (; t->started < t->bucket_count; t->started++) {
        size_t b = t->reversed ? t->bucket_count - 1 - t->started : t->started;
        Bucket *bucket = &t->buckets[b];
        if (bucket->pending > 0) return 0;
        if (t->tells) printf("  bucket %zu starts\n", b);
        copy_gradients(t, bucket, bucket->buffer, false);
        Collective mean = pg_all_reduce(bucket->buffer, bucket->count, PG_F32, PG_AVG);
        bucket->work = pg_start(t->group, mean, err);
        if (!bucket->work) return -1;
    }
    return 0;
}

// The hook: a gradient is complete. Backward continues with the next when this returns.
static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    Bucket *bucket = context;
    Trainer *t = bucket->trainer;
    if (!t->expects_backward) return 0;
    if (t->tells) printf("a gradient of %zu bytes\n", tensor_bytes(tensor));
    bucket->pending--;
    return t->waits ? 0 : start_full_buckets(t, err);
}

// After backward: waits for the means, and copies them back.
static void finish_gradients(Trainer *t) {
    Error err = {0};
    if (t->tells) printf("backward is over\n");
    if (t->expects_backward && start_full_buckets(t, &err) != 0) error_exit(&err); // by --break
    for (size_t b = 0; b < t->started; b++) {
        if (pg_work_wait(t->buckets[b].work, NULL, NULL, &err) != 0) error_exit(&err);
        copy_gradients(t, &t->buckets[b], t->buckets[b].buffer, true);
        if (t->tells) printf("  bucket %zu has arrived\n", b);
    }
    t->expects_backward = t->tells = false;
}
// ANCHOR_END: overlap

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
    for (size_t b = 0; b < t->bucket_count; b++)
        for (size_t i = 0; i < t->buckets[b].member_count; i++) {
            t->buckets[b].members[i]->on_ready = gradient_ready;
            t->buckets[b].members[i]->on_ready_context = &t->buckets[b];
        }
}

// The wrapper's forward: notes that the gradients of this one are to be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
    t->started = 0;
    for (size_t b = 0; b < t->bucket_count; b++) {
        t->buckets[b].buffer = tape_memory(t->tape, t->buckets[b].count * sizeof(float));
        t->buckets[b].pending = t->buckets[b].member_count;
    }
    return module_forward(t->model, t->tape, x);
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    double mean = (double)tensor_item(loss);
    finish_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG));
    return mean;
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(t->me.local_rank);
    t->model = train_create_model(&lesson->config, lesson->data, t->device, t->me.rank, &err);
    if (!t->model) error_exit(&err);
    t->tape = tape_create(t->device, NULL);
    t->tensors = module_tensors(t->model, MODULE_STATE);
    make_buckets(t);
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
    Trainer trainer = {.bucket_bytes = 25 * 1024 * 1024};
    lesson_options(&lesson, "tutorial_11", SUMMARY, "none|no-overlap|own-order");
    options_add(&lesson.options,
                (Option){"bucket-bytes", OPTION_SIZE, &trainer.bucket_bytes, "N", 0, 1e12,
                         "a bucket that holds so many is full; 0: each gradient alone"});
    options_add(&lesson.options, (Option){"show", OPTION_FLAG, &trainer.tells, NULL, 0, 0,
                                          "print what happens in the first backward"});
    lesson_begin(&lesson, argc, argv);
    trainer.group = ranks_join(&trainer.me, TIMEOUT_S);
    lesson.quiet = trainer.me.rank > 0;
    ranks_share_samples(trainer.group, &lesson);
    trainer.waits = lesson_breaks(&lesson, "no-overlap");
    trainer.reversed = lesson_breaks(&lesson, "own-order") && trainer.me.rank > 0;
    trainer.tells = trainer.tells && trainer.me.rank == 0;
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
