/* 01-accumulate.h: one step from several micro-batches on several ranks.
 *
 * Every rank has cut its rows into micro-batches that fit into its memory, and has the gradient of
 * each: the sum over the micro-batch's rows. They are to become the gradient of one large batch,
 * the mean over all rows of all ranks. Micro-batches may have different numbers of rows, and ranks
 * different numbers of micro-batches, so neither may be averaged as such.
 *
 * What is expensive is to send a gradient. So the micro-batches are added up at home (no_sync), and
 * one all-reduce sends the sum; another, small one the number of rows.
 */
#ifndef TUTORIALS_ACCUMULATE_H
#define TUTORIALS_ACCUMULATE_H

#include "ddp/group/process_group.h"

typedef struct MicroBatch {
    size_t rows;
    const float *sums; // [count]: the rows' gradients, added up
} MicroBatch;

// Fills gradient [count], in which old numbers stand, the same on every rank. This rank has
// micro [batches], maybe none; some rank has rows. Returns 0, or -1 with err filled.
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err);

#endif
