/* 02-sum-shards.h: the sum of the shards' gradients, in a fixed order.
 *
 * A float has a mantissa of 24 bits, so every addition rounds, and (a + b) + c is not always
 * a + (b + c). For a sum of gradients with the same bits on every machine, independent of the
 * shards' speed, the order must be fixed. This project's, and DataParallel's, is
 *
 *     sum[i] = ((shards[0][i] + shards[1][i]) + shards[2][i]) + ...
 *
 * in float, from the first shard to the last. The contents of `sum` are undefined before the call.
 */
#ifndef TUTORIALS_SUM_SHARDS_H
#define TUTORIALS_SUM_SHARDS_H

#include <stddef.h>

// sum [count]; shards [shard_count], at least one, each [count], only read.
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count);

#endif
