/* Your part: the first row of the shard, and the first one behind it. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    (void)rows, (void)shards, (void)shard;
    *begin = *end = 0;
}
