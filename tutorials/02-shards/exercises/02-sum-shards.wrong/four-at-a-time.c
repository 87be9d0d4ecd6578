/* Something was written behind the end of sum: count was 9, and sum[9] is not yours. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i += 4)
        for (size_t k = i; k < i + 4; k++) {
            sum[k] = shards[0][k];
            for (size_t shard = 1; shard < shard_count; shard++) sum[k] += shards[shard][k];
        }
}
