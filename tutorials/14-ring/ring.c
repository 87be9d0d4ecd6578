/* ring.c: step 14: the all-reduce itself, as a ring, in which all ranks do the same work. */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

enum { MOST_PARAMETERS = 128 };

typedef struct Bucket { // gradients that are reduced together
    Tensor **members;   // [member_count], parameters: a range of the trainer's
    size_t member_count;
    size_t count;  // floats in the buffer
    float *buffer; // [count], the members' gradients, concatenated
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
    size_t messages, bytes; // sent by this rank
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
        }
        t->parameters[count++] = tensor;
        bucket->member_count++;
        bucket->count += tensor_count(tensor);
        floats += tensor_count(tensor);
    }
}

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

// ANCHOR: ring
typedef struct Chunk { // a part of a bucket
    float *begin;
    size_t count;
} Chunk;

static Chunk chunk_of(const Trainer *t, float *data, size_t count, int number) {
    const int world = t->me.world_size;
    size_t begin, end;
    chunk_bounds(count, (size_t)world, (size_t)((number + world) % world), &begin, &end);
    return (Chunk){data + begin, end - begin};
}

// Sends `out` to the right and receives `in` from the left neighbour. Even ranks send first, odd
// ranks receive first: if all ranks sent first, each would wait for a receiver.
static void pass_on(Trainer *t, Chunk out, Chunk in) {
    const int world = t->me.world_size, rank = t->me.rank;
    const bool speaks = rank % 2 == 0;
    const Collective send = pg_send(out.begin, out.count, PG_F32, (rank + 1) % world);
    if (speaks) ranks_run(t->group, send);
    ranks_run(t->group, pg_recv(in.begin, in.count, PG_F32, (rank + world - 1) % world));
    if (!speaks) ranks_run(t->group, send);
    t->messages++;
    t->bytes += out.count * sizeof(float);
}

// Replaces data [count] on all ranks by its sum over the ranks.
static void ring_all_reduce(Trainer *t, float *data, size_t count) {
    const int me = t->me.rank, rounds = t->me.world_size - 1;
    float *arrived = tape_memory(t->tape, count * sizeof *arrived);
    for (int r = 0; r < rounds; r++) { // reduce-scatter: partial sums travel around
        Chunk mine = chunk_of(t, data, count, me - r - 1), in = {arrived, mine.count};
        pass_on(t, chunk_of(t, data, count, me - r), in);
        for (size_t i = 0; i < in.count; i++) mine.begin[i] += in.begin[i];
    }
    for (int r = 0; r < rounds; r++) // all-gather: each complete sum travels around once
        pass_on(t, chunk_of(t, data, count, me + 1 - r), chunk_of(t, data, count, me - r));
}
// ANCHOR_END: ring

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t b = 0; t->expects_backward && b < t->bucket_count; b++) {
        const Bucket *bucket = &t->buckets[b];
        lesson_pack_gradients(bucket->members, bucket->member_count, bucket->buffer);
        ring_all_reduce(t, bucket->buffer, bucket->count);
        for (size_t i = 0; i < bucket->count; i++)
            bucket->buffer[i] *= 1.0f / (float)t->me.world_size;
        lesson_unpack_gradients(bucket->members, bucket->member_count, bucket->buffer);
    }
    t->expects_backward = false;
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = wrapper_forward(t, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
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
    lesson_begin(&lesson, "ring", argc, argv);
    trainer.group = ranks_join(&trainer.me, &lesson);
    ranks_share_samples(trainer.group, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    lesson_print_each_step(&lesson, "rank 0 sends messages", trainer.messages, trainer.bytes);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
