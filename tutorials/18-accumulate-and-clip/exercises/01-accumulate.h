/* 01-accumulate.h: one step from several micro-batches on several ranks.
 *
 * Every rank has cut its rows into micro-batches that fit into its memory, and has the gradient of
 * each: the sum over the micro-batch's rows. Compute the gradient of one large batch, the mean over
 * all rows of all ranks. Micro-batches may have different numbers of rows, and ranks different
 * numbers of micro-batches, so a mean over micro-batches or over ranks is wrong.
 *
 * Sending a gradient is expensive. So each rank adds up its micro-batches locally (no_sync), and
 * one all-reduce sends the sum; another, small one the number of rows.
 */
#ifndef TUTORIALS_ACCUMULATE_H
#define TUTORIALS_ACCUMULATE_H

#include "ddp/group/process_group.h"

typedef struct MicroBatch {
    size_t rows;
    const float *sums; // [count]: the rows' gradients, added up
} MicroBatch;

// Fills gradient [count], undefined before, the same on every rank. This rank has micro [batches],
// maybe none; at least one rank has rows. Returns 0, or -1 with err filled.
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err);

#endif
