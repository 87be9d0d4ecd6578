/* all wait for the first. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    *begin = rank * (rows / world);
    *end = rank + 1 == world ? rows : *begin + rows / world;
}
