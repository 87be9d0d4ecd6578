/* own_sum.h: a user's function that sums buckets of gradients in the place of the backend's
 * all-reduce (ddp/own/own_all_reduce.h: train_ddp --all-reduce).
 */
#ifndef DDP_GROUP_OWN_SUM_H
#define DDP_GROUP_OWN_SUM_H

#include "ddp/group/backend.h"

typedef int PgSum(ProcessGroup *group, float *values, size_t count, Error *err);

// From now on the all-reduce of a bucket of float32 gradients calls sum, on the communication
// thread; sum calls pg_run of sends and receives only. All ranks must call it before their next
// collective. Returns -1 with err filled if the backend enqueues on devices, whose memory sum could
// not read.
int pg_set_sum(ProcessGroup *group, PgSum *sum, Error *err);

// For work.c: whether sum runs this call, and its run. Returns 0, or -1 with err filled.
bool own_sum_runs(const ProcessGroup *group, const PgCall *call);
int own_sum_run(ProcessGroup *group, const PgCall *call, Error *err);

// Whether this thread is inside the group's sum: its sends and receives run at once, in this
// thread, and every other call fails with err filled.
bool own_sum_inside(const ProcessGroup *group);
int own_sum_check(const Collective *collective, bool waits, Error *err);

#endif
