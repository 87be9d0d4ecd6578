/* reduce.h: sums over ranks, in rank order: for backends that add up themselves (shm, mpi). That
 * all of them add with these functions is why their results have the same bits.
 */
#ifndef DDP_GROUP_REDUCE_H
#define DDP_GROUP_REDUCE_H

#include "ddp/group/collective.h"

// Writes op over the ranks of sources[0..ranks)[0..count), taken in rank order element by element,
// to each of targets[0..target_count). A target is one of the sources or does not touch any.
void reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                          void *const *targets, int target_count, size_t count);

// What PG_AVG does at the end: values[0..count) *= 1 / ranks. type: PG_F32 or PG_F64.
void reduce_scale(PgType type, void *values, int ranks, size_t count);

#endif
