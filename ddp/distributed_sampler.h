/* distributed_sampler.h: PyTorch's DistributedSampler, the interleaved layout of
 * common/data/sampler.h.
 *
 * Rank r of R takes the samples at r, r + R, r + 2R, ... of the epoch's order, in batches of
 * global_batch / R, the last one short (torch/utils/data/distributed.py). All ranks get the same
 * number: the order is padded by repeating its beginning; with drop_last, its last N mod R samples
 * are dropped instead.
 *
 * - In step t all ranks together have the samples of DataParallel's step t, but rank r has other
 *   rows than DataParallel's device r. With the blocked layout (sampler_blocked) both have the same
 *   rows, which comparing batch normalisation requires.
 * - Repeated samples count twice in the last step's gradient. They would in a metric, too, so
 *   evaluation uses sampler_evaluation.
 *
 * The shuffle's seed is seed + epoch, as in PyTorch.
 */
#ifndef DDP_DISTRIBUTED_SAMPLER_H
#define DDP_DISTRIBUTED_SAMPLER_H

#include "common/data/sampler.h"

// Returns the sampler, or NULL with err filled when R does not divide global_batch (PyTorch's batch
// is per rank, so it has no such error), when the rank is not in [0, R - 1], or when no sample is
// left. drop_last is DistributedSampler's: it drops samples, not the short last batch.
Sampler *distributed_sampler(size_t samples, size_t global_batch, int world, int rank, bool shuffle,
                             bool drop_last, uint64_t seed, Error *err);

// Samples of each rank in an epoch: ceil(N / R), with drop_last floor(N / R).
size_t distributed_count(size_t samples, int world, bool drop_last);

// Replaces the beginning of an epoch's order by the rank's share; returns distributed_count. order:
// [samples + world] of which the first `samples` are set.
size_t distributed_indices(size_t *order, size_t samples, int world, int rank, bool drop_last);

#endif
