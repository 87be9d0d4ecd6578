/* The chunks are ceil(rows / shards) long, and only the last one is shorter. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    size_t length = rows / shards;
    *begin = shard * length;
    *end = shard + 1 == shards ? rows : *begin + length;
}
