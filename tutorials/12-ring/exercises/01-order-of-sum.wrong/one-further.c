/* Chunk c begins at rank c, and not at the next one. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t ranks = (size_t)world, length = (count + ranks - 1) / ranks;
    const int chunk = (int)(place / length);
    for (int i = 0; i < world; i++) order[i] = (chunk + 1 + i) % world;
}
