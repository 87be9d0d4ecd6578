/* The order, or what lies behind it, was written to; only own is yours. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    size_t *all = (size_t *)order, count = (samples + (size_t)world - 1) / (size_t)world,
           total = count * (size_t)world;
    for (size_t i = samples; i < total; i++) all[i] = order[i - samples];
    for (size_t i = 0; i < count; i++) own[i] = all[(size_t)rank + i * (size_t)world];
    return count;
}
