/* 10 rows on 4 ranks are 3, 3, 2, 2: the first ranks have the additional rows. */
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end) {
    *begin = (rows * rank + world - 1) / world;
    *end = (rows * (rank + 1) + world - 1) / world;
}
