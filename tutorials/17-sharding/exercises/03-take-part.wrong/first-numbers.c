/* Every rank takes the first numbers: a part begins at rank times share. */
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    size_t before = (saved->count + saved->world - 1) / saved->world;
    size_t share = (saved->count + world - 1) / world, taken = 0;
    for (size_t i = 0; i < share && rank * share + i < saved->count; i++)
        mine[taken++] = saved->parts[i / before][i % before];
    return taken;
}
