/* distributed_sampler.h: PyTorch's DistributedSampler, the interleaved layout of
 * common/data/sampler.h.
 *
 * Rank r of R takes the samples at r, r + R, r + 2R, ... of the epoch's order, and cuts them into
 * batches of global_batch / R, the last one short (torch/utils/data/distributed.py). So that all
 * ranks get the same number, the order is padded by repeating its beginning, or, with drop_last,
 * its last N mod R samples are left out. Two things follow:
 *
 * - Step t sees, in all ranks together, the very samples that DataParallel's step t sees, but
 *   rank r holds other rows of them than DataParallel's device r. With the blocked layout
 *   (sampler_blocked) both hold the same rows, as a comparison of batch normalisation needs it.
 * - The repeated samples are real ones: they weigh twice in the last step's gradient, and would in
 *   a metric, which is why evaluation uses sampler_evaluation.
 *
 * Seeds add: seed 1 in epoch 0 is seed 0 in epoch 1, as in PyTorch.
 */
#ifndef DDP_DISTRIBUTED_SAMPLER_H
#define DDP_DISTRIBUTED_SAMPLER_H

#include "common/data/sampler.h"

// drop_last is DistributedSampler's own: it avoids repeats, and a short last batch stays. Returns
// NULL with err filled when R does not divide global_batch (PyTorch cannot even say this: there the
// batch is given per rank), when the rank is not in [0, R - 1], or when no sample is left.
Sampler *distributed_sampler(size_t samples, size_t global_batch, int world, int rank, bool shuffle,
                             bool drop_last, uint64_t seed, Error *err);

// How many samples each rank gets in an epoch: ceil(N / R), with drop_last floor(N / R).
size_t distributed_count(size_t samples, int world, bool drop_last);

// Reduces an epoch's order, [samples] with room for `world` more, to rank's share, which is moved
// to the front. Returns distributed_count.
size_t distributed_indices(size_t *order, size_t samples, int world, int rank, bool drop_last);

#endif
