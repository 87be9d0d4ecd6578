/* three_ways.c: batch norm of one channel in three ways, with numbers for mental arithmetic.
 *
 * Rank r has two rows, 4r + 1 and 4r + 3, so two ranks together have 1, 3, 5, 7. Each line has,
 * for one way and one rank, the rank's two rows normalised, its running mean and variance after
 * them, and the running mean when the next forward begins.
 */
#include "common/nn/layers.h"
#include "ddp/features/sync_batch_norm.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

#define TIMEOUT_S 60.0

enum { MOST_RANKS = 64, ROWS = 2, VALUES = ROWS + 3 };

typedef struct Experiment {
    Rendezvous me;
    ProcessGroup *group;
    Device *device;
} Experiment;

// Rank 0 prints every rank's numbers, in the order of the ranks.
static void tell(const Experiment *e, const char *way, const double *mine) {
    double all[MOST_RANKS][VALUES];
    ranks_run(e->group, pg_all_gather(mine, all, VALUES, PG_F64));
    for (int rank = 0; e->me.rank == 0 && rank < e->me.world_size; rank++)
        printf("%-10s rank %d: rows %5.2f %5.2f  remembers mean %.2f, variance %.2f  "
               "continues with mean %.2f\n",
               way, rank, all[rank][0], all[rank][1], all[rank][2], all[rank][3], all[rank][4]);
}

// One forward through the layer with rows[count]; this rank's rows begin at index `own`.
static void forward(const Experiment *e, const char *way, Module *layer, const float *rows,
                    size_t count, size_t own) {
    Error err = {0};
    double mine[VALUES];
    Tape *tape = tape_create(e->device, NULL);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){count, 1}, rows);
    Tensor *y = module_forward(layer, tape, x);
    if (tape_error(tape, &err) != 0) error_exit(&err);
    for (int i = 0; i < ROWS; i++) mine[i] = (double)tensor_f32(y)[own + (size_t)i];
    BatchNormState state = layer_batch_norm_state(layer);
    float *mean = tensor_f32(state.running_mean);
    mine[ROWS] = (double)mean[0];
    mine[ROWS + 1] = (double)tensor_f32(state.running_var)[0];
    ranks_run(e->group, pg_broadcast(mean, 1, PG_F32, 0)); // the wrapper, before the next forward
    mine[ROWS + 2] = (double)mean[0];
    tell(e, way, mine);
    tape_close(tape);
    module_close(layer);
}

int main(void) {
    Error err = {0};
    Experiment e = {0};
    float rows[MOST_RANKS * ROWS];
    if (init_from_env(&e.me, true, &err) != 0) error_exit(&err);
    e.group = init_process_group("shm", &e.me, NULL, TIMEOUT_S, &err);
    if (!e.group) error_exit(&err);
    CHECK(e.me.world_size <= MOST_RANKS, "at most %d ranks", MOST_RANKS);
    e.device = lesson_device(e.me.local_rank);
    size_t count = (size_t)e.me.world_size * ROWS, own = (size_t)e.me.rank * ROWS;
    for (size_t i = 0; i < count; i++) rows[i] = (float)(2 * i + 1);

    forward(&e, "one device", layer_batch_norm(e.device, 1), rows, count, own);
    forward(&e, "own rows", layer_batch_norm(e.device, 1), rows + own, ROWS, 0);
    Module *layer = sync_batch_norm_convert(layer_batch_norm(e.device, 1), e.group, &err);
    if (!layer) error_exit(&err);
    forward(&e, "sync", layer, rows + own, ROWS, 0);

    device_close(e.device);
    pg_close(e.group);
    return STATUS_OK;
}
