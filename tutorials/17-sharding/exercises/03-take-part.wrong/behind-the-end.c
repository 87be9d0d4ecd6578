/* the array ends first. */
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    size_t before = (saved->count + saved->world - 1) / saved->world;
    size_t share = (saved->count + world - 1) / world, taken = 0;
    for (size_t i = rank * share; i < (rank + 1) * share; i++)
        mine[taken++] = i < saved->count ? saved->parts[i / before][i % before] : 0;
    return taken;
}
