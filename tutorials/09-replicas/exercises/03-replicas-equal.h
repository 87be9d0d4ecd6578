/* 03-replicas-equal.h: do all ranks hold the same weights?
 *
 * Compare bit for bit, and return the same answer on every rank: otherwise a rank that finds the
 * replicas equal continues, and waits in the next collective for a rank that has stopped.
 *
 * One way: broadcast rank 0's weights into a copy, compare the copy with your own (memcmp), and
 * agree on the result by an all-reduce:
 *
 *     pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err)
 *
 * Compare bits and not values: two ranks with the same NaN are equal, although NaN != NaN; a rank
 * with 0 and one with -0 are not, although 0 == -0.
 */
#ifndef TUTORIALS_REPLICAS_EQUAL_H
#define TUTORIALS_REPLICAS_EQUAL_H

#include "ddp/group/process_group.h"

// weights [count] of this rank, only read; scratch [count] is memory for a copy. Sets *equal.
// Returns 0, or -1 with err filled.
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err);

#endif
