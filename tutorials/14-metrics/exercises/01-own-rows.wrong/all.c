/* Every rank looks at all rows: each of them counts as often as there are ranks. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    (void)world, (void)rank;
    *begin = 0;
    *end = rows;
}
