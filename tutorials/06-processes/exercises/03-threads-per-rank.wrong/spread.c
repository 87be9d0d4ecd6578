/* What is left over goes to the first ranks. */
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    int end = ((local_rank + 1) * cores + local_ranks - 1) / local_ranks;
    int begin = (local_rank * cores + local_ranks - 1) / local_ranks;
    return end > begin ? end - begin : 1;
}
