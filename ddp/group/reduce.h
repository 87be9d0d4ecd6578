/* reduce.h: reductions over ranks in rank order, for the backends that reduce on the CPU (shm,
 * mpi). Their results are equal bit for bit because both use these functions.
 */
#ifndef DDP_GROUP_REDUCE_H
#define DDP_GROUP_REDUCE_H

#include "ddp/group/collective.h"

// Reduces sources[0..ranks)[0..count) with op, in rank order for each element, and writes the
// result to each of targets[0..target_count). A target equals a source or overlaps none.
void reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                          void *const *targets, int target_count, size_t count);

// How a sum is divided over ranks: cut at cache lines, so that no two ranks write the same line.
// Ranks 0 to W - 2 have slices of the same size; the last rank also has the remainder.
typedef struct ReduceSlice {
    size_t first, count; // elements
} ReduceSlice;
// The elements of each slice but the last one's.
size_t reduce_slice_count(PgType type, size_t count, int ranks);
ReduceSlice reduce_slice_of(PgType type, size_t count, int ranks, int rank);

// The last step of PG_AVG: values[0..count) *= 1 / ranks. type: PG_F32 or PG_F64.
void reduce_scale(PgType type, void *values, int ranks, size_t count);

#endif
