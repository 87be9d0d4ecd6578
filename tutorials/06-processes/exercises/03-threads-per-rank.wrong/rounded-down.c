/* Some cores stay idle: cores / local_ranks rounds down. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    (void)local_rank;
    return cores / local_ranks > 0 ? cores / local_ranks : 1;
}
