/* own has room for samples / world + 1 = 7, and number 7 was written. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    size_t ranks = (size_t)world, n = (samples + ranks - 1) / ranks;
    for (size_t i = 0; i < n + 8; i++) own[i] = order[((size_t)rank + ranks * i) % samples];
    return n;
}