/* Your part: what is here is the order of the ranks, wherever the number stands. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    (void)place, (void)count;
    for (int i = 0; i < world; i++) order[i] = i;
}
