/* The length of a chunk is rounded up: else there is one chunk too many. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    size_t length = count / (size_t)world;
    if (length == 0) length = 1;
    const int chunk = (int)(place / length);
    for (int i = 0; i < world; i++) order[i] = (chunk + i) % world;
}
