/* 03-batch-mean.h: the mean of a batch from the means of its shards.
 *
 * Every shard reports the mean of its own rows. The mean of these means is the mean of the batch
 * only if all shards have the same number of rows; otherwise each row of a short shard has too
 * large a weight. Compute the mean over all rows:
 *
 *     (rows[0] * means[0] + rows[1] * means[1] + ...) / (rows[0] + rows[1] + ...)
 *
 * A shard may have no rows. Its mean is 0 / 0, which is NaN, and NaN times 0 is NaN again: such a
 * shard must be left out. (A shard with rows and the mean NaN must not be left out: its training
 * has failed, and the result must be NaN, too.) If no shard has rows, the result is 0.
 */
#ifndef TUTORIALS_BATCH_MEAN_H
#define TUTORIALS_BATCH_MEAN_H

#include <stddef.h>

// means [shards], rows [shards].
double batch_mean(const double *means, const size_t *rows, size_t shards);

#endif
