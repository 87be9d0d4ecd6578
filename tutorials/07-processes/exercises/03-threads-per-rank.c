/* 03-threads-per-rank.c: cores for each rank. The task is in 03-threads-per-rank.h. */
#include "tutorials/07-processes/exercises/03-threads-per-rank.h"

// SOLUTION BEGIN
int threads_per_rank(int cores, int local_ranks, int local_rank) {
    int threads = cores / local_ranks + (local_rank < cores % local_ranks);
    return threads > 0 ? threads : 1;
}
// SOLUTION END
