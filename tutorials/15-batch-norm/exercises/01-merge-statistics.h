/* 01-merge-statistics.h: the mean and the variance of all ranks' rows, from each rank's own.
 *
 * Two sets of rows have each n, mean and m2 (the sum of squared distances from the set's own mean).
 * Their union has
 *
 *     n = n1 + n2      d = mean2 - mean1
 *     mean = mean1 + d n2 / n
 *     m2   = m2_1 + m2_2 + d d n1 n2 / n
 *
 * and its variance is m2 / n. So each rank computes its three numbers, one all-gather gives every
 * rank those of all ranks,
 *
 *     pg_run(group, pg_all_gather(own, all, 3, PG_F64), err)
 *
 * and every rank merges them in the order of the ranks. (The sum of squares minus the square of the
 * sum is shorter, but inaccurate where the mean is large and the variance small.)
 *
 * A rank may have no rows; it takes part nevertheless.
 */
#ifndef TUTORIALS_MERGE_STATISTICS_H
#define TUTORIALS_MERGE_STATISTICS_H

#include "ddp/group/process_group.h"

enum { MERGE_MOST_RANKS = 8 };

// rows [count] of this rank; at least one rank has rows. Sets *mean and *var, the same on every
// rank. There are at most MERGE_MOST_RANKS ranks. Returns 0, or -1 with err filled.
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err);

#endif
