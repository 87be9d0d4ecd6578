/* 03-mean-loss.h: the mean over all rows of all ranks.
 *
 * Every rank has the sum of its rows' losses and its number of rows. The ranks may have different
 * numbers of rows, and some none. All ranks need the mean over all rows: so sums and counts are
 * added up separately, and divided at the end.
 *
 *     pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err)
 *
 * adds values[2], two doubles, over all ranks. The cost is the wait for the other ranks, and not
 * the 16 bytes: so use only *one* collective.
 */
#ifndef TUTORIALS_MEAN_LOSS_H
#define TUTORIALS_MEAN_LOSS_H

#include "ddp/group/process_group.h"

// Sets *mean, the same on every rank; without any rows it is 0. Returns 0, or -1 with err filled.
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err);

#endif
