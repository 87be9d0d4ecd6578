/* was given rows that do not exist, or some twice: that is padding. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t each = (rows + world - 1) / world;
    *begin = rank * each;
    *end = *begin + each;
}
