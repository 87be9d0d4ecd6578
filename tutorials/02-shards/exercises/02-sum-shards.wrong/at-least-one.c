/* The count was 0, and a sum was written. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    size_t i = 0;
    do {
        sum[i] = shards[0][i];
        for (size_t shard = 1; shard < shard_count; shard++) sum[i] += shards[shard][i];
    } while (++i < count);
}
