/* With fewer samples than ranks the order has to begin again more than once. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    const size_t ranks = (size_t)world, r = (size_t)rank;
    const size_t count = (samples + ranks - 1) / ranks;
    for (size_t i = 0; i < count; i++) {
        size_t at = r + i * ranks;
        own[i] = order[at < samples ? at : at - samples];
    }
    return count;
}
