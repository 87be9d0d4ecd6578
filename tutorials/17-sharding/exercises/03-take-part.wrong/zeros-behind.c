/* numbers, and behind them 0 was written. */
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    size_t before = (saved->count + saved->world - 1) / saved->world;
    size_t share = (saved->count + world - 1) / world, taken = 0;
    for (size_t i = rank * share; i < (rank + 1) * share; i++) {
        int is_there = i < saved->count;
        mine[i - rank * share] = is_there ? saved->parts[i / before][i % before] : 0;
        taken += is_there;
    }
    return taken;
}
