/* join.h: training when the ranks' inputs run out at different times (PyTorch's Join).
 *
 *     Join *join = join_open(&joinable, 1, &config, &err);
 *     while (there is a batch) ... forward, backward, step ...
 *     join_end(join, &err);
 *
 * A rank that has no more inputs has joined. In join_end it mirrors the collectives of the ranks
 * that still train, so that they do not wait for it in vain, until all have joined; then the ranks
 * that trained longest give their state to all. What those collectives are is known to the
 * joinables: everything that communicates in an iteration. join_ddp.h makes a wrapped model one.
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
    // All functions are optional; -1 with err filled.
    void (*set_join)(void *state, Join *join); // the context begins, or is over (NULL)
    // On a joined rank: the collectives of one iteration of the others.
    int (*mirror)(void *state, Error *err);
    // On every rank, when all have joined. last: no other rank trained longer than this one.
    int (*end)(void *state, bool last, Error *err);
} Joinable;

typedef struct JoinConfig {
    bool disable; // for inputs that are known to be even: then nothing here has an effect
    // Once a rank has joined, no rank continues: join_end fails there, join_notify on the others.
    // Required when forward has collectives that joined ranks do not mirror (SyncBatchNorm).
    bool throw_on_early_termination;
    // Averages divide by the ranks that still train. PyTorch's default divides by all.
    bool divide_by_active_ranks;
} JoinConfig;

// All joinables must be of one group. NULL with PyTorch's error.
Join *join_open(const Joinable *joinables, size_t count, const JoinConfig *config, Error *err);

// Each joinable calls this at the beginning of its iteration, before its collectives. The first one
// tells the joined ranks that this rank continues. -1 with err filled.
int join_notify(Join *join, const void *joinable_state, Error *err);
// By how many ranks averages divide in this iteration: those that train, or 0 for all.
int join_divisor(const Join *join);

// This rank's inputs are exhausted: returns when all ranks' are. Frees the join, also after an
// error.
int join_end(Join *join, Error *err);
// Leaves without mirroring anything: after an error in the body. NULL is fine.
void join_abandon(Join *join);

// The largest rank for which `candidate` holds. -1 with err filled if there is none. Collective.
int join_elect(ProcessGroup *group, bool candidate, Error *err);

#endif
