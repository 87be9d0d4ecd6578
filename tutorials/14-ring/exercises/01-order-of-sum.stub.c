/* Your part: this stub adds in the order of the ranks, at every index. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    (void)place, (void)count;
    for (int i = 0; i < world; i++) order[i] = i;
}
