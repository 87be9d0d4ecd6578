/* 03-mean-loss.c: a mean that counts every row once. The task is in 03-mean-loss.h. */
#include "tutorials/08-collectives/exercises/03-mean-loss.h"

// SOLUTION BEGIN
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
// SOLUTION END
