/* whom to leave out is told by rows, or a training that has failed looks well. */
double batch_mean(const double *means, const size_t *rows, size_t shards) {
    double sum = 0;
    size_t count = 0;
    for (size_t shard = 0; shard < shards; shard++) {
        if (means[shard] != means[shard]) continue;
        sum += means[shard] * (double)rows[shard];
        count += rows[shard];
    }
    return count == 0 ? 0.0 : sum / (double)count;
}
