/* rank_helpers.h: the small things that programs with several ranks do again and again: who is the
 * main one, gather odd-sized pieces, add up named numbers, agree on a seed.
 *
 * All but the first three are collective: every rank of the group calls. group NULL is a world of
 * one, so that a program can be written once for one rank and for many.
 */
#ifndef DDP_GROUP_RANK_HELPERS_H
#define DDP_GROUP_RANK_HELPERS_H

#include "ddp/group/process_group.h"

int rank_get(const ProcessGroup *group);               // 0 without a group
int rank_world_size(const ProcessGroup *group);        // 1 without a group
bool rank_is_main(const ProcessGroup *group);          // rank 0
int rank_synchronize(ProcessGroup *group, Error *err); // a barrier

// What the ranks gave: rank r's bytes are data[offset[r]] to data[offset[r + 1]].
typedef struct RankBlobs {
    int count;      // ranks; 0 on ranks that get nothing
    size_t *offset; // [count + 1]
    unsigned char *data;
} RankBlobs;

// Each rank gives any number of bytes (also none). All ranks get all of them.
int rank_all_gather_blobs(ProcessGroup *group, const void *data, size_t bytes, RankBlobs *all,
                          Error *err);
// Only root gets them. (Each rank sends its own bytes, and no padding.)
int rank_gather_blobs(ProcessGroup *group, const void *data, size_t bytes, int root, RankBlobs *all,
                      Error *err);
void rank_blobs_free(RankBlobs *blobs); // leaves it empty

typedef struct NamedValue {
    const char *name;
    double value;
} NamedValue;

// Sums or averages each value over the ranks, in place, on all ranks. The names must be the same
// everywhere; their order need not be. If they are not, all ranks get an error that says who lacks
// what, and the group lives on.
int rank_reduce_dict(ProcessGroup *group, NamedValue *values, size_t count, bool average,
                     Error *err);

// A random number, the same on all ranks: rank 0's.
int rank_shared_seed(ProcessGroup *group, uint64_t *seed, Error *err);
// One seed per rank, for where ranks must differ on purpose (augmentation, dropout): a pure
// function of the two. Not collective.
uint64_t rank_own_seed(uint64_t seed, int rank);

#endif
