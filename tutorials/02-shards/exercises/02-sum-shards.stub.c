/* Your part: for every i, the shards' numbers added up, first shard first. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    (void)shards, (void)shard_count;
    for (size_t i = 0; i < count; i++) sum[i] = 0.0f;
}
