/* 02-exposed-time.h: how much of the communication is left to be seen.
 *
 * Bucket b is full `ready[b]` milliseconds after backward has begun, and its all-reduce takes
 * cost[b]. A group carries out one collective after the other: bucket b begins when it is full and
 * bucket b - 1 has arrived. Backward ends after `backward` milliseconds and does not wait before.
 * The exposed time is what passes between its end and the arrival of the last bucket, and 0 if all
 * have arrived before.
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
