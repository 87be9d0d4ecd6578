/* It crashed (SIGSEGV): it read or wrote memory that is not its own. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    size_t padded[64], count = (samples + (size_t)world - 1) / (size_t)world,
                       total = count * (size_t)world;
    for (size_t i = 0; i < total; i++) padded[i] = order[i % samples];
    for (size_t i = 0; i < count; i++) own[i] = padded[(size_t)rank + i * (size_t)world];
    return count;
}
