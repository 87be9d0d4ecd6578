/* All ranks but the last one have as many lines, and the last one has the rest. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t lines = count / LINE, more = lines % world;
    size_t before = rank * (lines / world) + (rank < more ? rank : more);
    *begin = before * LINE;
    *end = rank + 1 == world ? count : *begin + (lines / world + (rank < more)) * LINE;
}
