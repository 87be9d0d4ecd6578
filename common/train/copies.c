/* copies.c: reads the starters' environment variables. */
#include "common/train/copies.h"

#include <stdlib.h>

// Each starter's variables for a process's rank and the number of processes.
static const struct {
    const char *rank, *size, *also; // `also` must be set, too; NULL: nothing
} STARTERS[] = {
    {"RANK", "WORLD_SIZE", NULL}, // ddprun, torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}, // srun, and not its batch script
};

void copies_note(const Job *job, Log *log) {
    if (job->devices > job->all_count) return; // several processes train one model
    for (size_t i = 0; i < sizeof STARTERS / sizeof *STARTERS; i++) {
        const char *rank = getenv(STARTERS[i].rank), *size = getenv(STARTERS[i].size);
        if (!rank || !size || (STARTERS[i].also && !getenv(STARTERS[i].also))) continue;
        if (atoi(rank) == 0 && atoi(size) > 1)
            log_say(log,
                    "note: %d processes were started, and each of them trains the whole model on "
                    "its own -- for one training by all of them use train_ddp",
                    atoi(size));
        return;
    }
}
