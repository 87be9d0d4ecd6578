/* end is the first row behind the shard, as in [begin, end), and not its last row. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    size_t length = (rows + shards - 1) / shards;
    *begin = shard * length < rows ? shard * length : rows;
    *end = (*begin + length < rows ? *begin + length : rows) - 1;
}
