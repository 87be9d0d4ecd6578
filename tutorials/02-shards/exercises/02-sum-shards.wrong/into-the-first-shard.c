/* The numbers of shard 0 were changed */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    float *f = (float *)shards[0];
    for (size_t s = 1; s < shard_count; s++)
        for (size_t i = 0; i < count; i++) f[i] += shards[s][i];
    for (size_t i = 0; i < count; i++) sum[i] = f[i];
}