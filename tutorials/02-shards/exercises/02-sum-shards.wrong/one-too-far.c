/* Something was written behind the end of sum */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i <= count; i++) {
        sum[i] = shards[0][i];
        for (size_t s = 1; s < shard_count; s++) sum[i] += shards[s][i];
    }
}