/* 02-exposed-time.h: the communication that backward does not hide.
 *
 * Bucket b is full `ready[b]` milliseconds after the start of backward, and its all-reduce takes
 * cost[b]. A group runs one collective after the other: bucket b begins when it is full and bucket
 * b - 1 has completed. Backward ends after `backward` milliseconds and does not wait for buckets.
 * The exposed time is the time from its end to the completion of the last bucket, and 0 if all
 * buckets complete before.
 *
 *     ready 2 5 9, cost 4 2 3, backward 9:   bucket 0 from 2 to 6, bucket 1 from 6 to 8,
 *                                            bucket 2 from 9 to 12: 3 ms are exposed, 6 are hidden
 */
#ifndef TUTORIALS_EXPOSED_TIME_H
#define TUTORIALS_EXPOSED_TIME_H

#include <stddef.h>

// ready [count], in ascending order, and cost [count], all in milliseconds.
double exposed_time(const double *ready, const double *cost, size_t count, double backward);

#endif
