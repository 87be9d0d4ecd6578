/* The additions were not rounded to float one by one, as those of the devices are. */
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double exact = 0;
        for (size_t shard = 0; shard < shard_count; shard++) exact += (double)shards[shard][i];
        sum[i] = (float)exact;
    }
}
