/* The parts meet inside a cache line, which both ranks write: cut at multiples of 16 floats. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t share = count / world;
    *begin = rank * share;
    *end = rank + 1 == world ? count : *begin + share;
}
