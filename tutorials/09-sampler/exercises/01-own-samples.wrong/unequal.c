/* The ranks have different numbers of samples: one with more waits for the others forever. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    const size_t ranks = (size_t)world, r = (size_t)rank;
    size_t count = 0;
    for (size_t i = r; i < samples; i += ranks) own[count++] = order[i];
    return count;
}
