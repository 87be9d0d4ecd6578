/* 01-start-when-full.h: buckets that start while backward is running.
 *
 * Three functions. overlap_begin is called before a backward: no gradient is complete then.
 * overlap_ready is called by a hook when one gradient of `bucket` is complete; its numbers lie in
 * the bucket's buffer already. When it was the last one of the bucket, the bucket is full, and its
 * mean over all ranks is to be started:
 *
 *     bucket->work = pg_start(overlap->group,
 *                             pg_all_reduce(bucket->buffer, bucket->floats, PG_F32, PG_AVG), err)
 *
 * which returns NULL after an error. It is not to be waited for: backward is to go on. Buckets are
 * started in the order of their numbers, the same on all ranks, though gradients may become
 * complete in different orders: a full bucket waits for those before it, and starts with them.
 *
 * overlap_finish is called after backward, in which every gradient became complete. It waits for
 * all buckets, by pg_work_wait(bucket->work, NULL, NULL, err).
 *
 * The next step begins with overlap_begin again.
 */
#ifndef TUTORIALS_START_WHEN_FULL_H
#define TUTORIALS_START_WHEN_FULL_H

#include "ddp/group/process_group.h"

typedef struct OverlapBucket {
    float *buffer; // [floats]
    size_t floats;
    size_t gradients; // how many it holds
    size_t pending;   // yours: of these, not complete yet
    PgWork *work;     // yours
} OverlapBucket;

typedef struct Overlap {
    ProcessGroup *group;
    OverlapBucket *buckets; // [count]
    size_t count;
    size_t started; // yours: so many buckets, the first ones
} Overlap;

void overlap_begin(Overlap *overlap);
int overlap_ready(Overlap *overlap, size_t bucket, Error *err); // 0, or -1 with err filled
int overlap_finish(Overlap *overlap, Error *err);               // 0, or -1 with err filled

#endif
