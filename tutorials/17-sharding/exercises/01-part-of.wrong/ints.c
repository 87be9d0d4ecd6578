/* An int ends at 2,147,483,647. */
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end) {
    int share = (int)count / LINE / (int)world * LINE;
    *begin = (size_t)((int)rank * share);
    *end = rank + 1 == world ? count : *begin + (size_t)share;
}
