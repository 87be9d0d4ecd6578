/* What is left over goes to the first ranks. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    int threads = cores / local_ranks + (local_rank >= local_ranks - cores % local_ranks);
    return threads > 0 ? threads : 1;
}
