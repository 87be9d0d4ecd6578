/* 02-exposed.h: what overlap leaves over.
 *
 * Backward takes backward_s. Bucket b is ready ready_s[b] after its beginning, and its all-reduce
 * takes reduce_s[b]. The buckets are reduced one after the other, in their order: each begins when
 * it is ready and the one before it is done, whichever comes later. The optimizer waits for the
 * last one.
 *
 * What is the time from the end of backward to the end of the last all-reduce? It is called
 * exposed, because it is what one sees of communication. It is never negative. (Whoever has solved
 * exercise 2 of step 11 knows the queue already; here it is in seconds, and part of a prediction.)
 */
#ifndef TUTORIALS_EXPOSED_H
#define TUTORIALS_EXPOSED_H

// ready_s, reduce_s [buckets], ready_s ascending. Seconds.
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s);

#endif
