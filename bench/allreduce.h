/* allreduce.h: what one rank of bench_allreduce measures: the all_reduces of all sizes, what the
 * machine could do at best, and a cache line's way between two cores. How the ranks come to be is
 * in bench_allreduce.c.
 */
#ifndef BENCH_ALLREDUCE_H
#define BENCH_ALLREDUCE_H

#include "common/base/sync.h"
#include "common/device/device.h"
#include "ddp/group/process_group.h"

typedef struct AllReduceSettings {
    int world;
    size_t min_bytes, max_bytes, factor; // sizes: min, min * factor, ..., max
    size_t iterations;                   // 0: by size
    bool threads, processes;             // what the ranks are; neither: processes
    const char *device;                  // "cpu" or "cuda"; for ranks that a launcher started
    const char *backend;                 // likewise
    bool fast_sums;                      // MPI's own
    double timeout_s;
    // Memory of all ranks, made before they began, or NULL (ranks of a launcher): W blocks of
    // block_bytes for the plain sum, and two words that are sent to and fro.
    unsigned char *blocks;
    size_t block_bytes;
    SyncWord *words; // [2]
} AllReduceSettings;

// Makes blocks and words. Returns 0, or -1 with err filled. They live as long as the process.
int allreduce_share_memory(AllReduceSettings *settings, Error *err);

// Plays one rank to the end, on a core of its own, and closes the group. device: where the rank's
// buffer lies; NULL: host memory. Rank 0 prints the results. Returns the exit status: not STATUS_OK
// if an element of any sum was wrong.
int allreduce_run_rank(const AllReduceSettings *settings, ProcessGroup *group, Device *device);

#endif
