/* The last shard is missing from the sum. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum[i] = shards[0][i];
        for (size_t shard = 1; shard + 1 < shard_count; shard++) sum[i] += shards[shard][i];
    }
}
