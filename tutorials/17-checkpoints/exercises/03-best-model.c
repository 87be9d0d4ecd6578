/* 03-best-model.c: the same decision on all ranks. The task is in 03-best-model.h. */
#include "tutorials/17-checkpoints/exercises/03-best-model.h"

// SOLUTION BEGIN
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    double counts[2] = {(double)right, (double)rows};
    if (pg_run(group, pg_all_reduce(counts, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *is_best = counts[1] > 0 && counts[0] / counts[1] > *best;
    if (*is_best) *best = counts[0] / counts[1];
    return 0;
}
// SOLUTION END
