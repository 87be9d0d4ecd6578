/* Your part: how many lines are a rank's, and where they begin. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    (void)count, (void)world, (void)rank;
    *begin = *end = 0;
}
