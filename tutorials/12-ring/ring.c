/* ring.c: step 12: the all-reduce itself, as a ring.
 *
 * Each rank sends to the next one and receives from the one before, and no rank is in the middle. A
 * bucket is cut into as many chunks as there are ranks, which travel around at the same time.
 */
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 12: buckets are reduced by a ring, written out.\n"
                              "Example: ddprun --nproc-per-node 3 tutorial_12 --epochs 2";

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
    size_t bucket_bytes;                 // a bucket that holds so many is full
    Tensor *parameters[MOST_PARAMETERS]; // those that are trained, the last one first
    Bucket buckets[MOST_PARAMETERS];
    size_t bucket_count;
    size_t messages, bytes;     // that this rank has sent
    bool lost_round, all_speak; // --break: one round is missing; all send first
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

// ANCHOR: ring
typedef struct Chunk { // of a bucket
    float *begin;
    size_t count;
} Chunk;

static Chunk chunk_of(const Trainer *t, float *data, size_t count, int number) {
    const int world = t->me.world_size;
    size_t begin, end;
    chunk_bounds(count, (size_t)world, (size_t)((number + world) % world), &begin, &end);
    return (Chunk){data + begin, end - begin};
}

// Every rank sends to the right and receives from the left. Even ranks speak first, odd ones listen
// first: if all spoke at once, none would listen.
static void pass_on(Trainer *t, Chunk out, Chunk in) {
    const int world = t->me.world_size, rank = t->me.rank;
    const bool speaks = rank % 2 == 0 || t->all_speak;
    const Collective send = pg_send(out.begin, out.count, PG_F32, (rank + 1) % world);
    if (speaks) ranks_run(t->group, send);
    ranks_run(t->group, pg_recv(in.begin, in.count, PG_F32, (rank + world - 1) % world));
    if (!speaks) ranks_run(t->group, send);
    t->messages++;
    t->bytes += out.count * sizeof(float);
}

// On all ranks, data [count] becomes the sum of what the ranks had.
static void ring_all_reduce(Trainer *t, float *data, size_t count) {
    const int me = t->me.rank, rounds = t->me.world_size - 1 - t->lost_round;
    float *arrived = tape_memory(t->tape, count * sizeof *arrived);
    for (int r = 0; r < rounds; r++) { // reduce-scatter: sums grow as they go around
        Chunk mine = chunk_of(t, data, count, me - r - 1), in = {arrived, mine.count};
        pass_on(t, chunk_of(t, data, count, me - r), in);
        for (size_t i = 0; i < in.count; i++) mine.begin[i] += in.begin[i];
    }
    for (int r = 0; r < rounds; r++) // all-gather: each complete sum goes around once
        pass_on(t, chunk_of(t, data, count, me + 1 - r), chunk_of(t, data, count, me - r));
}
// ANCHOR_END: ring

// After backward: the gradients of all ranks become their mean.
static void average_gradients(Trainer *t) {
    for (size_t b = 0; b < t->bucket_count; b++) {
        const Bucket *bucket = &t->buckets[b];
        float *buffer = tape_memory(t->tape, bucket->count * sizeof *buffer); // of this step
        copy_gradients(t, bucket, buffer, false);
        ring_all_reduce(t, buffer, bucket->count);
        for (size_t i = 0; i < bucket->count; i++) buffer[i] *= 1.0f / (float)t->me.world_size;
        copy_gradients(t, bucket, buffer, true);
    }
}

// Rank 0 has a large number and the others a 1, at every place. The sums should be the same.
static void show_orders(Trainer *t) {
    float numbers[MOST_PARAMETERS];
    for (int i = 0; i < t->me.world_size; i++) numbers[i] = t->me.rank == 0 ? 16777216.0f : 1.0f;
    ring_all_reduce(t, numbers, (size_t)t->me.world_size);
    for (int i = 0; t->me.rank == 0 && i < t->me.world_size; i++)
        printf("chunk %d: %.0f\n", i, (double)numbers[i]);
}

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// Leaves the mean gradients of all ranks in the model, and returns the mean of their losses.
static double compute_gradients(Trainer *t, const Batch *batch) {
    Error err = {0};
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    if (tape_error(t->tape, &err) != 0) error_exit(&err);
    if (tape_backward(t->tape, loss, &err) != 0) error_exit(&err);
    double mean = (double)tensor_item(loss);
    average_gradients(t);
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
    bool show = false;
    Trainer trainer = {.bucket_bytes = 25 * 1024 * 1024};
    lesson_options(&lesson, "tutorial_12", SUMMARY, "none|lost-round|nobody-listens");
    options_add(&lesson.options,
                (Option){"bucket-bytes", OPTION_SIZE, &trainer.bucket_bytes, "N", 0, 1e12,
                         "a bucket that holds so many is full; 0: each gradient alone"});
    options_add(&lesson.options, (Option){"orders", OPTION_FLAG, &show, NULL, 0, 0, "print sums"});
    lesson_begin(&lesson, argc, argv);
    trainer.all_speak = lesson_breaks(&lesson, "nobody-listens");
    trainer.lost_round = lesson_breaks(&lesson, "lost-round");
    trainer.group = ranks_join(&trainer.me, trainer.all_speak ? 8.0 : 60.0);
    lesson.quiet = trainer.me.rank > 0;
    ranks_share_samples(trainer.group, &lesson);
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    if (show) show_orders(&trainer);
    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    if (!lesson.quiet)
        printf("each step: rank 0 sends messages=%zu bytes=%zu\n", trainer.messages / lesson.steps,
               trainer.bytes / lesson.steps);
    ranks_print_whether_equal(trainer.group, trainer.model);
    lesson_end(&lesson, trainer.model);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
