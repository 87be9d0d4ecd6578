/* 01-cut-buckets.h: the bucket of each gradient.
 *
 * Go through the parameters from the last to the first, the order in which backward completes their
 * gradients. Put each gradient into the open bucket; a bucket of `cap` bytes or more is closed, and
 * the next gradient opens another. Buckets are numbered from 0 in the order in which they are
 * opened. A gradient is never cut, and the last bucket need not be full:
 *
 *     bytes 100 20 300 40, cap 50:    40 and 300 make bucket 0, 20 and 100 make bucket 1
 *     the same, cap 0:                each gradient has a bucket of its own
 */
#ifndef TUTORIALS_CUT_BUCKETS_H
#define TUTORIALS_CUT_BUCKETS_H

#include <stddef.h>

// bytes [count] of the parameters' gradients, in the order of registration. Writes the number of
// each gradient's bucket into bucket_of [count]. Returns the number of buckets.
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of);

#endif
