/* join.h: training when the ranks' inputs run out at different times (PyTorch's Join).
 *
 *     Join *join = join_open(&joinable, 1, &config, &err);
 *     while (there is a batch) ... forward, backward, step ...
 *     join_end(join, &err);
 *
 * A rank without further inputs has joined. In join_end it mirrors the collectives of the active
 * ranks (those that still train), so that these do not block, until all ranks have joined. Then the
 * ranks that trained longest give their state to all. Each joinable knows its own collectives of an
 * iteration; join_ddp.h makes a wrapped model a joinable.
 */
#ifndef DDP_FEATURES_JOIN_H
#define DDP_FEATURES_JOIN_H

#include <stdbool.h>
#include <stddef.h>

#include "ddp/group/process_group.h"

typedef struct Join Join;

typedef struct Joinable {
    void *state;
    ProcessGroup *group;
    // All functions are optional. Those that return an int return 0, or -1 with err filled.
    void (*set_join)(void *state, Join *join); // the context begins, or has ended (NULL)
    // On a joined rank: the collectives of one iteration of the active ranks.
    int (*mirror)(void *state, Error *err);
    // On every rank, after all have joined. last: no rank trained longer than this one.
    int (*end)(void *state, bool last, Error *err);
} Joinable;

typedef struct JoinConfig {
    bool disable; // for even inputs: no function has an effect
    // Once a rank has joined, no rank continues: join_end fails there, join_notify on the others.
    // Required when forward has collectives that joined ranks do not mirror (SyncBatchNorm).
    bool throw_on_early_termination;
    // Averages divide by the number of active ranks. false (PyTorch's default): by all ranks.
    bool divide_by_active_ranks;
} JoinConfig;

// Copies the joinables, which must have one group. Returns NULL with PyTorch's error in err.
Join *join_open(const Joinable *joinables, size_t count, const JoinConfig *config, Error *err);

// Each joinable calls this at the beginning of its iteration, before its collectives. The first
// joinable's call counts the active ranks, which tells joined ranks to mirror. Collective. 0, or -1
// with err filled.
int join_notify(Join *join, const void *joinable_state, Error *err);
// Returns the divisor of averages in this iteration: the number of active ranks; 0: all ranks.
int join_divisor(const Join *join);

// Call it when this rank's inputs are exhausted: mirrors until all ranks have joined. Frees the
// join, also after an error. 0, or -1 with err filled.
int join_end(Join *join, Error *err);
// Frees the join without mirroring: after an error in the loop. NULL does nothing.
void join_abandon(Join *join);

// Returns the highest rank whose `candidate` is true; -1 with err filled if there is none.
// Collective.
int join_elect(ProcessGroup *group, bool candidate, Error *err);

#endif
