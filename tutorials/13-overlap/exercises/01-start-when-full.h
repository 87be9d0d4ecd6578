/* 01-start-when-full.h: buckets that start while backward is running.
 *
 * Three functions. overlap_begin is called before a backward: no gradient is complete then.
 * overlap_ready is called by a hook when one gradient of `bucket` is complete and in the bucket's
 * buffer. After the last gradient of a bucket the bucket is full: start its mean over all ranks,
 *
 *     bucket->work = pg_start(overlap->group,
 *                             pg_all_reduce(bucket->buffer, bucket->floats, PG_F32, PG_AVG), err)
 *
 * which returns NULL after an error. Do not wait for it, since backward must continue. Start the
 * buckets in the order of their numbers, the same on all ranks, although gradients may become
 * complete in different orders: a full bucket is started when all buckets before it are started.
 *
 * overlap_finish is called after backward, when every gradient is complete. It waits for all
 * buckets, by pg_work_wait(bucket->work, NULL, NULL, err).
 *
 * The next step begins with overlap_begin again.
 */
#ifndef TUTORIALS_START_WHEN_FULL_H
#define TUTORIALS_START_WHEN_FULL_H

#include "ddp/group/process_group.h"

typedef struct OverlapBucket {
    float *buffer; // [floats]
    size_t floats;
    size_t gradients; // their number in this bucket
    size_t pending;   // yours: the number of incomplete ones
    PgWork *work;     // yours
} OverlapBucket;

typedef struct Overlap {
    ProcessGroup *group;
    OverlapBucket *buckets; // [count]
    size_t count;
    size_t started; // yours: the number of started buckets, from the first on
} Overlap;

void overlap_begin(Overlap *overlap);
int overlap_ready(Overlap *overlap, size_t bucket, Error *err); // 0, or -1 with err filled
int overlap_finish(Overlap *overlap, Error *err);               // 0, or -1 with err filled

#endif
