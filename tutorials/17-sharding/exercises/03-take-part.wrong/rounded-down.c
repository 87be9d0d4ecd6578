/* Rank 0 of 2 took 0 numbers, and its part has 1. */
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    size_t before = (saved->count + saved->world - 1) / saved->world;
    size_t share = saved->count / world, taken = 0;
    for (size_t i = rank * share; i < (rank + 1) * share; i++)
        mine[taken++] = saved->parts[i / before][i % before];
    return taken;
}
