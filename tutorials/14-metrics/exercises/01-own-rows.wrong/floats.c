/* A float counts to 16,777,216 only. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t each = (size_t)((float)rows / (float)world), more = rows - each * world;
    *begin = rank * each + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}
