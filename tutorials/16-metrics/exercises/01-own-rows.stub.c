/* Your part: where this rank's rows begin and end. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    (void)rows, (void)world, (void)rank;
    *begin = *end = 0;
}
