/* An int ends at 2,147,483,647. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    int each = (int)rows / (int)world, more = (int)rows % (int)world, r = (int)rank;
    *begin = (size_t)(r * each + (r < more ? r : more));
    *end = *begin + (size_t)(each + (r < more));
}
