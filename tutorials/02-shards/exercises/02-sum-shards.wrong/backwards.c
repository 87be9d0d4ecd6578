/* The sum is right, but its last bits are those of another order: first shard first. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum[i] = shards[shard_count - 1][i];
        for (size_t shard = shard_count - 1; shard > 0; shard--) sum[i] += shards[shard - 1][i];
    }
}
