/* A rank got no thread at all: with more ranks than cores each still needs one. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    return cores / local_ranks + (local_rank < cores % local_ranks);
}
