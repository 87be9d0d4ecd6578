/* 01-own-samples.h: an order of all samples, cut into shares.
 *
 * All ranks have the same order of an epoch. Rank r of W takes the samples at r, r + W, r + 2W, ...
 * Every rank must get the same number of samples, or a rank with more waits for the others forever.
 * So if W does not divide the number of samples, the order is continued with its first samples:
 *
 *     order 7 3 5 1 9, 2 ranks:  7 3 5 1 9 (7)    rank 0: 7 5 9    rank 1: 3 1 7
 *     order 7 3,       5 ranks:  7 3 (7 3 7)      one sample each: 7, 3, 7, 3, 7
 */
#ifndef TUTORIALS_OWN_SAMPLES_H
#define TUTORIALS_OWN_SAMPLES_H

#include <stddef.h>

// order [samples], at least one; own has room for samples / world + 1. Writes this rank's samples
// in their order, and returns their number.
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own);

#endif
