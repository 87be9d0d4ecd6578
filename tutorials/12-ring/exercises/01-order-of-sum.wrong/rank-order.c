/* This is the order of the ranks everywhere; a ring adds chunk 1 in another one. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    (void)place, (void)count;
    for (int i = 0; i < world; i++) order[i] = i;
}
