/* Every rank rounds up: together they have more threads than there are cores. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    (void)local_rank;
    return (cores + local_ranks - 1) / local_ranks;
}
