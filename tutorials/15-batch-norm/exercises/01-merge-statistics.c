/* 01-merge-statistics.c: statistics of all rows. The task is in 01-merge-statistics.h. */
#include "tutorials/15-batch-norm/exercises/01-merge-statistics.h"

// SOLUTION BEGIN
typedef struct Heap {
    double n, mean, m2;
} Heap;

static Heap heap_of(const double *rows, size_t count) {
    Heap heap = {.n = (double)count};
    for (size_t i = 0; i < count; i++) heap.mean += rows[i] / heap.n;
    for (size_t i = 0; i < count; i++) heap.m2 += (rows[i] - heap.mean) * (rows[i] - heap.mean);
    return heap;
}

static Heap merged(Heap a, Heap b) {
    double n = a.n + b.n, d = b.mean - a.mean;
    if (n == 0) return a;
    return (Heap){n, a.mean + d * b.n / n, a.m2 + b.m2 + d * d * a.n * b.n / n};
}

int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    Heap own = heap_of(rows, count), all[MERGE_MOST_RANKS], total = {0};
    if (pg_run(group, pg_all_gather(&own, all, 3, PG_F64), err) != 0) return -1;
    for (int rank = 0; rank < pg_size(group); rank++) total = merged(total, all[rank]);
    *mean = total.mean;
    *var = total.m2 / total.n;
    return 0;
}
// SOLUTION END
