/* A part reaches behind the last element: a share rounded up is too much for the last ranks. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t lines = count / LINE, share = (lines + world - 1) / world * LINE;
    *begin = rank * share;
    *end = rank + 1 == world ? count : *begin + share;
}
