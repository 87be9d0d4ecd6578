/* An int ends at 2,147,483,647. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const int length = ((int)count + world - 1) / world;
    const int chunk = (int)place / (length > 0 ? length : 1);
    for (int i = 0; i < world; i++) order[i] = (chunk + i) % world;
}
