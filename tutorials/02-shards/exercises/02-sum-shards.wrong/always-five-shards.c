/* sum[0] of 3 shards is 75 and should be 24. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum[i] = shards[0][i];
        for (size_t s = 1; s < (shard_count > 2 ? 5 : shard_count); s++) sum[i] += shards[s][i];
    }
}