/* Your part: the first line of a rank, the number of its lines, and the last rank's rest. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    (void)count, (void)world, (void)rank;
    *begin = *end = 0;
}
