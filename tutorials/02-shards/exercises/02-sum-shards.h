/* 02-sum-shards.h: the sum of the shards' gradients, in a fixed order.
 *
 * A float has 24 bits for its digits, so every addition rounds, and (a + b) + c is not always
 * a + (b + c). A sum of gradients with the same bits on every machine, however fast each
 * shard was, needs an agreed order. This project's, and DataParallel's, is
 *
 *     sum[i] = ((shards[0][i] + shards[1][i]) + shards[2][i]) + ...
 *
 * in float, from the first shard to the last. What stands in `sum` before means nothing.
 */
#ifndef TUTORIALS_SUM_SHARDS_H
#define TUTORIALS_SUM_SHARDS_H

#include <stddef.h>

// sum [count]; shards [shard_count], at least one, each [count]. The shards stay as they are.
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count);

#endif
