/* Samples are lost at the end: fill up instead of cutting off. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    const size_t ranks = (size_t)world, r = (size_t)rank;
    const size_t count = samples / ranks;
    for (size_t i = 0; i < count; i++) own[i] = order[r + i * ranks];
    return count;
}
