/* sampler.h: the samples of this rank, and their order.
 *
 * A sampler has the batches of one rank for one epoch: batch i is indices[start[i] .. start[i+1]),
 * and the batches i of all ranks together have global[i] samples. Three layouts:
 *
 *   whole        one device or DataParallel: consecutive global batches of the permutation
 *   interleaved  PyTorch's DistributedSampler (ddp/distributed_sampler.h builds it)
 *   blocked      rank r takes the r-th chunk (ceil(B/W) rows) of the batch of `whole`, so DDP's
 *                rank r has the rows of DataParallel's device r
 *
 * The order of an epoch is randperm(N, seed + epoch), or 0..N-1 without shuffling: a pure function,
 * so a resumed run continues by skipping.
 */
#ifndef COMMON_DATA_SAMPLER_H
#define COMMON_DATA_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct Sampler Sampler;
struct Sampler {
    size_t samples;      // N, in the data set
    size_t global_batch; // B
    int world, rank;
    bool shuffle, drop_last;
    bool interleaved; // rank r has samples r, r + W, ...; otherwise a chunk
    uint64_t seed;
    // Fills the three arrays below for an epoch.
    void (*layout)(Sampler *self, size_t epoch);

    size_t batch_count; // batches per epoch, the same on every rank and in every epoch
    size_t *indices;    // all of this rank's indices, batch after batch
    size_t *start;      // [batch_count + 1]
    size_t *global;     // [batch_count] samples of this batch in all ranks together
};

// Creates a sampler of the whole layout, for a world of one. drop_last drops an incomplete last
// batch. Returns NULL with err filled if global_batch is 0 or no batch is left.
Sampler *sampler_whole(size_t samples, size_t global_batch, bool shuffle, bool drop_last,
                       uint64_t seed, Error *err);
// Creates a sampler of the blocked layout. A rank's chunk of the last batch may be empty.
Sampler *sampler_blocked(size_t samples, size_t global_batch, int world, int rank, bool shuffle,
                         bool drop_last, uint64_t seed, Error *err);
// The type of sampler_blocked and distributed_sampler.
typedef Sampler *SamplerOfRank(size_t samples, size_t global_batch, int world, int rank,
                               bool shuffle, bool drop_last, uint64_t seed, Error *err);
void sampler_close(Sampler *sampler); // may be NULL
// Drops the last batch if it is incomplete, as PyTorch's DataLoader does with drop_last.
// Returns 0, or -1 with err filled if no batch is left.
int sampler_drop_incomplete(Sampler *sampler, Error *err);
void sampler_set_epoch(Sampler *sampler, size_t epoch);

// For evaluation: this rank's contiguous chunk of 0..N-1 in batches of at most `batch`; every
// sample is in exactly one rank's chunk. Ranks may have different numbers of batches.
Sampler *sampler_evaluation(size_t samples, size_t batch, int world, int rank);

// ---- for layouts, here and of a DistributedSampler ----------------------------------------------

// Checks the arguments of a layout and stores them in `wanted`. Returns 0, or -1 with err filled.
int sampler_begin(Sampler *wanted, size_t samples, size_t global_batch, int world, int rank,
                  bool shuffle, bool drop_last, uint64_t seed, Error *err);
// Allocates a sampler with wanted's fields, to which the caller has added batch_count and layout,
// and fills its arrays for epoch 0. `indices` has a capacity of samples + world.
Sampler *sampler_create(const Sampler *wanted);
// Writes the order of an epoch, [samples].
void sampler_order(const Sampler *sampler, size_t epoch, size_t *order);

// PyTorch's chunk rule: chunks of ceil(count / chunks); the last ones are short or missing. Sets
// [*begin, *end) to the range of chunk i, which is empty if it is missing.
void chunk_bounds(size_t count, size_t chunks, size_t i, size_t *begin, size_t *end);

#endif
