/* sixteen.c: sixteen numbers times ten: which rank gets which samples, and the order of the
 * gathered outputs.
 *
 * The data are the numbers 0 to 15, the model multiplies by ten, two ranks take batches of four.
 */
#include "ddp/distributed_sampler.h"
#include "tutorials/ranks.h"

#define TIMEOUT_S 60.0

enum { SAMPLES = 16, BATCH = 4, MOST_RANKS = 4 }; // of each rank

static void print(const char *who, const float *numbers, size_t count) {
    printf("%s", who);
    for (size_t i = 0; i < count; i++) printf(" %3.0f", (double)numbers[i]);
    printf("\n");
}

// Rank 0 prints each rank's line, and the result of all_gather.
static void show(ProcessGroup *group, const char *what, const float *own) {
    float all[MOST_RANKS * BATCH];
    char who[32];
    ranks_run(group, pg_all_gather(own, all, BATCH, PG_F32));
    if (pg_rank(group) > 0) return;
    for (int rank = 0; rank < pg_size(group); rank++) {
        snprintf(who, sizeof who, "rank %d %-9s", rank, what);
        print(who, all + (size_t)rank * BATCH, BATCH);
    }
    if (what[0] == 'o') print("gathered        ", all, (size_t)pg_size(group) * BATCH);
}

int main(void) {
    Error err = {0};
    Rendezvous me;
    if (init_from_env(&me, true, &err) != 0) error_exit(&err);
    CHECK(me.world_size <= MOST_RANKS && SAMPLES % (me.world_size * BATCH) == 0,
          "1, 2 or 4 ranks, not %d", me.world_size);
    ProcessGroup *group = init_process_group("shm", &me, NULL, TIMEOUT_S, &err);
    if (!group) error_exit(&err);
    Sampler *sampler = distributed_sampler(SAMPLES, (size_t)me.world_size * BATCH, me.world_size,
                                           me.rank, true, false, 0, &err);
    if (!sampler) error_exit(&err);

    for (size_t b = 0; b < sampler->batch_count; b++) {
        float inputs[BATCH], outputs[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            inputs[i] = (float)sampler->indices[sampler->start[b] + i]; // sample k is the number k
            outputs[i] = 10 * inputs[i];
        }
        if (me.rank == 0) printf("step %zu\n", b);
        show(group, "inputs", inputs);
        show(group, "outputs", outputs);
    }

    sampler_close(sampler);
    pg_close(group);
    return STATUS_OK;
}
