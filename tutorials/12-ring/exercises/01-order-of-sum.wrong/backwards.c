/* The chunk goes around the wrong way: after rank c comes rank c + 1. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t ranks = (size_t)world, length = (count + ranks - 1) / ranks;
    const int chunk = (int)(place / length);
    for (int i = 0; i < world; i++) order[i] = (chunk - i + world) % world;
}
