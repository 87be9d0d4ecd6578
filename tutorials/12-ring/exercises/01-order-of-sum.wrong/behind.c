/* Something was written behind the order: there are as many places as ranks. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t ranks = (size_t)world, length = (count + ranks - 1) / ranks;
    const int chunk = (int)(place / length);
    for (int i = 0; i <= world; i++) order[i] = (chunk + i) % world;
}
