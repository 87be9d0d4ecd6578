/* The shards' sums were added up, but not divided by the number of all rows. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    for (size_t shard = 0; shard < shards; shard++)
        if (rows[shard] > 0) sum += means[shard] * (double)rows[shard];
    return sum;
}
