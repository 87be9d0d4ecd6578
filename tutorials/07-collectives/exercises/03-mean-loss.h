/* 03-mean-loss.h: the mean over all rows of all ranks.
 *
 * Every rank knows the sum of its rows' losses and how many rows it has. The ranks may have
 * different numbers of rows, and some none. All of them want to know the mean over all rows: so
 * sums and counts are added up apart, and divided at the end.
 *
 *     pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err)
 *
 * adds values[2], two doubles, over all ranks. What costs is the waiting for one another, and not
 * the 16 bytes: so do it in *one* collective.
 */
#ifndef TUTORIALS_MEAN_LOSS_H
#define TUTORIALS_MEAN_LOSS_H

#include "ddp/group/process_group.h"

// Sets *mean, the same on every rank; without any rows it is 0. Returns 0, or -1 with err filled.
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err);

#endif
