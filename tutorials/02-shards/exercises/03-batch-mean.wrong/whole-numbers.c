/* 30 / 60 is 0 in whole numbers: a division whose result is between them needs a double. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double mean = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) count += rows[shard];
    for (size_t shard = 0; shard < shards; shard++)
        if (rows[shard] > 0) mean += means[shard] * (double)(rows[shard] / count);
    return mean;
}
