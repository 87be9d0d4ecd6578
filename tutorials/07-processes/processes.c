/* processes.c: step 7: W processes of a launcher join a group; each computes all rows. */
#include <time.h>
#include <unistd.h>

#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

#define TIMEOUT_S 60.0 // the deadline of a rank's wait for the others

// ANCHOR: trainer
typedef struct Trainer {
    Rendezvous me; // rank, local rank, world size
    ProcessGroup *group;
    Device *device;
    Module *model;
    Tape *tape;
} Trainer;
// ANCHOR_END: trainer

// ANCHOR: ranks
// Reads this rank's number from the environment, and joins the group of all ranks.
static void join(Trainer *t) {
    Error err = {0};
    if (init_from_env(&t->me, true, &err) != 0) error_exit(&err); // no launcher: a single rank
    t->group = init_process_group("shm", &t->me, NULL, TIMEOUT_S, &err);
    if (!t->group) error_exit(&err);
    printf("I am rank %d of %d, process %d; we meet at %s:%d\n", t->me.rank, t->me.world_size,
           getpid(), t->me.master_addr, t->me.master_port);
}

// Rank 0 has a slow disk. A rank that reads the saved file has to wait for rank 0.
static void save(const Trainer *t, Lesson *lesson) {
    const char *file = lesson->config.save;
    struct timespec slow = {.tv_nsec = 300 * 1000 * 1000};
    if (file && t->me.rank == 0) nanosleep(&slow, NULL);
    lesson_end(lesson, t->model);
    ranks_run(t->group, pg_barrier());
    if (file && t->me.rank > 0)
        printf("the file is %s\n", access(file, R_OK) == 0 ? "there" : "not there");
}
// ANCHOR_END: ranks

// Leaves the gradients of the batch's mean loss in the model, and returns that loss.
static double compute_gradients(Trainer *t, const Batch *batch) {
    module_zero_grad(t->model);
    Rows rows = lesson_rows(t->tape, batch, 0, batch->count);
    Tensor *outputs = module_forward(t->model, t->tape, rows.samples);
    Tensor *loss = lesson_loss(t->tape, outputs, rows.target, batch->count);
    double value = lesson_backward(t->tape, loss);
    tape_reset(t->tape);
    return value;
}

static void trainer_open(Trainer *t, const Lesson *lesson) {
    t->device = lesson_device(t->me.local_rank);
    t->model = lesson_model(lesson, t->device, 0);
    t->tape = tape_create(t->device, NULL);
}

static void trainer_close(Trainer *t) {
    tape_close(t->tape);
    module_close(t->model);
    device_close(t->device);
    pg_close(t->group);
}

int main(int argc, char **argv) {
    Lesson lesson;
    Trainer trainer = {0};
    lesson_begin(&lesson, "processes", argc, argv);
    // ANCHOR: quiet
    join(&trainer);
    lesson.quiet = trainer.me.rank > 0; // one rank prints and saves
    // ANCHOR_END: quiet
    trainer_open(&trainer, &lesson);
    Optimizer *optimizer = lesson_optimizer(&lesson, trainer.model);

    for (const Batch *batch; (batch = lesson_next(&lesson));) {
        double loss = compute_gradients(&trainer, batch);
        optimizer_step(optimizer, lesson_lr(&lesson));
        lesson_report(&lesson, loss);
    }

    save(&trainer, &lesson);
    optimizer_close(optimizer);
    trainer_close(&trainer);
    return STATUS_OK;
}
