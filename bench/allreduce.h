/* allreduce.h: the measurements of one rank of bench_allreduce: all_reduces of all sizes, the
 * machine's bound, and the round trip of a cache line between two cores. bench_allreduce.c starts
 * the ranks.
 */
#ifndef BENCH_ALLREDUCE_H
#define BENCH_ALLREDUCE_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"

typedef struct AllReduceSettings {
    int world;
    size_t min_bytes, max_bytes, factor; // sizes: min, min * factor, ..., max
    size_t iterations;                   // 0: by size
    bool threads, processes;             // the kind of the ranks; neither: processes
    const char *device;                  // "cpu" or "cuda"; for ranks that a launcher started
    const char *backend;                 // likewise
    bool fast_sums;                      // MPI's own
    double timeout_s;
} AllReduceSettings;

// Plays one rank to the end, on a core of its own, and closes the group. device: where the rank's
// buffer lies; NULL: host memory. Rank 0 prints the results. Returns the exit status: not STATUS_OK
// if an element of any sum was wrong.
int allreduce_run_rank(const AllReduceSettings *settings, ProcessGroup *group, Device *device);

#endif
