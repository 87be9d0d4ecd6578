/* machines.c: step 21: ranks on several machines.
 *
 * Step 8 as it is; it does not matter to a collective where the ranks are. What is new is that a
 * rank has two numbers: its place in the job, and its place on its machine (a node). Devices and
 * files belong to a node, so they go by the second.
 */
#include <unistd.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

static const char SUMMARY[] = "Step 21: trains on several machines.\n"
                              "Example: ddprun --nnodes 2 --node-rank 0 --nproc-per-node 2 "
                              "--master-addr 10.0.0.1 tutorial_21";

#define TIMEOUT_S 60.0 // how long a rank waits for the others before it gives up

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
    NamedTensors tensors; // the model's parameters and buffers
    const char *scratch;  // a folder on the node's own disk; NULL: nothing is prepared
} Trainer;

// Wrapping: the weights and buffers of all ranks become rank 0's. Once.
static void wrap(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        ranks_run(t->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0));
    }
}

// After backward: the gradients of all ranks become their mean.
static void average_gradients(const Trainer *t) {
    for (size_t k = 0; k < t->tensors.count; k++) {
        Tensor *tensor = t->tensors.items[k].tensor;
        if (tensor->requires_grad) // else it is a buffer
            ranks_run(t->group, pg_all_reduce(tensor->grad, tensor_count(tensor), PG_F32, PG_AVG));
    }
}

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

// ANCHOR: node
// Each node has as many devices as ranks, numbered from 0. (Here they are CPU devices.)
static int choose_device(const Trainer *t, const Lesson *lesson) {
    Error err = {0};
    int device = lesson_breaks(lesson, "global-rank") ? t->me.rank : t->me.local_rank;
    if (device < t->me.local_world_size) return device;
    error_set(&err, STATUS_FAILED, "rank %d wants device %d, and its node has 0 to %d", t->me.rank,
              device, t->me.local_world_size - 1);
    error_exit(&err);
}

// Unpacks the data on the node's own disk: once on each node, by its first rank. The others wait.
static void prepare(const Trainer *t, const Lesson *lesson) {
    char file[1024];
    bool first = lesson_breaks(lesson, "prepare-once") ? t->me.rank == 0 : t->me.local_rank == 0;
    if (!t->scratch) return;
    snprintf(file, sizeof file, "%s/unpacked", t->scratch);
    if (first) {
        FILE *unpacked = fopen(file, "w");
        CHECK(unpacked, "cannot write %s", file);
        fclose(unpacked);
    }
    ranks_run(t->group, pg_barrier());
    printf("rank %d, local rank %d, node %d: the data is %s\n", t->me.rank, t->me.local_rank,
           t->me.rank / t->me.local_world_size, access(file, R_OK) == 0 ? "there" : "NOT there");
}
// ANCHOR_END: node

static void trainer_open(Trainer *t, const Lesson *lesson) {
    Error err = {0};
    t->device = lesson_device(choose_device(t, lesson));
    t->model = train_create_model(&lesson->config, lesson->data, t->device, t->me.rank, &err);
    if (!t->model) error_exit(&err);
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
    Trainer trainer = {0};
    lesson_options(&lesson, "tutorial_21", SUMMARY, "none|global-rank|prepare-once");
    options_add(&lesson.options, (Option){"scratch", OPTION_STRING, &trainer.scratch, "DIR", 0, 0,
                                          "a folder on this node's own disk"});
    lesson_begin(&lesson, argc, argv);
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0;
    prepare(&trainer, &lesson);
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
