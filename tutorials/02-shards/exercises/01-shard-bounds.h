/* 01-shard-bounds.h: the rows of each shard.
 *
 * PyTorch's DataParallel cuts a batch of `rows` rows into chunks of ceil(rows / shards) rows, one
 * after the other, until no row is left. So the last chunk may be shorter than the others, and
 * there may be fewer chunks than shards:
 *
 *     10 rows, 4 shards:   [0,3) [3,6) [6,9) [9,10)
 *      9 rows, 8 shards:   [0,2) [2,4) [4,6) [6,8) [8,9)  and three shards without rows
 *
 * It is not the most even cut (10 rows could be 3, 3, 2, 2), but results equal PyTorch's only if
 * each device gets the same rows as there.
 */
#ifndef TUTORIALS_SHARD_BOUNDS_H
#define TUTORIALS_SHARD_BOUNDS_H

#include <stddef.h>

// Sets [*begin, *end) to the rows of shard `shard` of `shards`. For a shard without rows *begin
// equals *end, and both are at most `rows`.
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end);

#endif
