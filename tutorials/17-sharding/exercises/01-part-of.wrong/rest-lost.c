/* The last floats are nobody's: what is no whole line goes to the last rank. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t share = count / LINE / world * LINE;
    *begin = rank * share;
    *end = *begin + share;
}
