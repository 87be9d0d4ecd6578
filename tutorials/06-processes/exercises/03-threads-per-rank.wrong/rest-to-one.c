/* One rank got all that was left over; the shares may differ by one at most. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    int threads = cores / local_ranks + (local_rank == 0 ? cores % local_ranks : 0);
    return threads > 0 ? threads : 1;
}
