/* The last floats are in no part: the incomplete line goes to the last rank. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    size_t share = count / LINE / world * LINE;
    *begin = rank * share;
    *end = *begin + share;
}
