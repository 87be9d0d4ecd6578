/* buckets.c: step 10: few large messages instead of many small ones.
 *
 * Every all-reduce costs a wait for the others, however few bytes it has. So gradients are put
 * together into buckets, and each bucket is reduced at once.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 10: gradients are reduced in buckets.\n"
                              "Example: ddprun --nproc-per-node 2 tutorial_10 --epochs 2";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

enum { MOST_PARAMETERS = 128 };

typedef struct Bucket { // gradients that are reduced together
    Tensor **members;   // parameters, some of the trainer's
    size_t member_count;
    size_t count; // of floats
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
    size_t messages, bytes; // all-reduces of buckets so far
} Trainer;

// ANCHOR: buckets
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
            *bucket = (Bucket){.members = t->parameters + count};
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

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t b = 0; t->expects_backward && b < t->bucket_count; b++) {
        const Bucket *bucket = &t->buckets[b];
        float *buffer = tape_memory(t->tape, bucket->count * sizeof *buffer); // of this step
        copy_gradients(t, bucket, buffer, false);
        ranks_run(t->group, pg_all_reduce(buffer, bucket->count, PG_F32, PG_AVG));
        copy_gradients(t, bucket, buffer, true);
        t->messages++;
        t->bytes += bucket->count * sizeof(float);
    }
    t->expects_backward = false;
}
// ANCHOR_END: buckets

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// The wrapper's forward: notes that the gradients of this one are to be averaged.
static Tensor *wrapper_forward(Trainer *t, Tensor *x) {
    t->expects_backward = true;
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
    average_gradients(t);
    tape_reset(t->tape);
    ranks_run(t->group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG));
    return mean;
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
    wrap(t);
    make_buckets(t);
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
    lesson_options(&lesson, "tutorial_10", SUMMARY, "none|last-bucket-lost|other-buckets");
    options_add(&lesson.options,
                (Option){"bucket-bytes", OPTION_SIZE, &trainer.bucket_bytes, "N", 0, 1e12,
                         "a bucket that holds so many is full; 0: each gradient alone"});
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    ranks_share_samples(trainer.group, &lesson);
    if (lesson_breaks(&lesson, "other-buckets") && trainer.me.rank > 0) trainer.bucket_bytes = 0;
    trainer_open(&trainer, &lesson);
    trainer.bucket_count -= lesson_breaks(&lesson, "last-bucket-lost");
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    if (!lesson.quiet)
        printf("each step: all_reduces=%zu bytes=%zu\n", trainer.messages / lesson.steps,
               trainer.bytes / lesson.steps);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
