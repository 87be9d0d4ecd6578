/* all wait for the first. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t each = (rows + world - 1) / world;
    *begin = rank * each < rows ? rank * each : rows;
    *end = *begin + each < rows ? *begin + each : rows;
}
