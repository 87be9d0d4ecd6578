/* Your part: this rank's share. What is here is what libraries do if nobody tells them. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    (void)local_ranks, (void)local_rank;
    return cores;
}
