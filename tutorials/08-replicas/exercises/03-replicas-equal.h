/* 03-replicas-equal.h: do all ranks hold the same weights?
 *
 * The answer is wanted bit for bit, and the same on every rank: a rank that believes the replicas
 * equal continues, and waits in the next collective for a rank that has stopped.
 *
 * One way: take rank 0's weights by a broadcast into a copy, compare the copy with your own
 * (memcmp), and agree on the result by an all-reduce:
 *
 *     pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err)
 *
 * Compare bits and not values: NaN is not equal to itself, but two ranks with the same NaN are
 * still equal, and 0 == -0, although they are not.
 */
#ifndef TUTORIALS_REPLICAS_EQUAL_H
#define TUTORIALS_REPLICAS_EQUAL_H

#include "ddp/group/process_group.h"

// weights [count] of this rank, which stay as they are; scratch [count] is memory for a copy. Sets
// *equal. Returns 0, or -1 with err filled.
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err);

#endif
