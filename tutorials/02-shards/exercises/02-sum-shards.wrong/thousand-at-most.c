/* It crashed (SIGSEGV): it read or wrote memory that is not its own. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    float total[1024];
    for (size_t i = 0; i < count; i++) total[i] = shards[0][i];
    for (size_t shard = 1; shard < shard_count; shard++)
        for (size_t i = 0; i < count; i++) total[i] += shards[shard][i];
    for (size_t i = 0; i < count; i++) sum[i] = total[i];
}
