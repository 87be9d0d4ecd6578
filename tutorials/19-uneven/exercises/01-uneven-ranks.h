/* 01-uneven-ranks.h: the ranks' batches run out at different times.
 *
 * Every rank has `batches` batches of its own, and the ranks do not know each other's numbers.
 * Train until no rank has a batch: in each step compute the mean of the gradients of the ranks that
 * still have one, and take the step with it on *all* ranks, also on those without a batch. So all
 * ranks take the same number of steps, and the replicas stay equal.
 *
 * A rank without a batch must continue to call the same collectives as the others, and must detect
 * when to stop. A gradient is one number here. One all-reduce in each step can carry both: the sum
 * of the gradients and their number. If it is 0, all ranks stop.
 */
#ifndef TUTORIALS_UNEVEN_RANKS_H
#define TUTORIALS_UNEVEN_RANKS_H

#include "ddp/group/process_group.h"

typedef struct Training { // of this rank
    void *context;
    size_t batches;                                  // maybe 0
    double (*gradient)(void *context, size_t batch); // of batch 0 .. batches - 1
    void (*step)(void *context, double mean_gradient);
} Training;

// Called by all ranks. Returns 0, or -1 with err filled.
int train_uneven(ProcessGroup *group, const Training *training, Error *err);

#endif
