/* something was kept from one call to the next. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    static size_t next;
    size_t length = (rows + shards - 1) / shards;
    if (shard == 0) next = 0;
    *begin = next;
    *end = next + length < rows ? next + length : rows;
    next = *end;
}
