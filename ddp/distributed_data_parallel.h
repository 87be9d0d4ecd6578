/* distributed_data_parallel.h: PyTorch's DistributedDataParallel: one process per device.
 *
 * Construction checks that all ranks hold the same model (names, shapes, dtypes), broadcasts rank
 * 0's parameters and buffers once, and hangs a Reducer on the parameters. From then on every rank
 * runs forward and backward on its own share of the batch, and only gradients travel: parameters
 * stay equal because equal weights get equal updates. A forward broadcasts rank 0's buffers (batch
 * norm's running statistics) first, if the one before it was a training step's.
 *
 * What a plain training run does not need is in ddp/features. Each feature hangs itself on a
 * wrapper by what reducer.h offers: CommHook, ReadyPolicy and DdpIteration.
 */
#ifndef DDP_DISTRIBUTED_DATA_PARALLEL_H
#define DDP_DISTRIBUTED_DATA_PARALLEL_H

#include "common/base/profile.h"
#include "common/nn/module.h"
#include "ddp/group/process_group.h"

// Whoever hangs something on a wrapper includes ddp/reducer.h, where these are.
typedef struct Reducer Reducer;
typedef struct CommHook CommHook;

typedef struct DdpConfig {
    double bucket_cap_mb; // negative: PyTorch's default (25 MiB, the first bucket 1 MiB)
    bool overlap;
    bool broadcast_buffers;
    bool global_normalization; // the loss is divided by the global batch: sum, do not average
    // Names of parameters and buffers that are neither made equal nor reduced, ended by a NULL; or
    // NULL.
    const char *const *ignored;
} DdpConfig;

DdpConfig ddp_config_default(void);

// Wraps the module, which is the wrapper's from now on; the group stays the caller's. Collective.
// NULL with err filled on every rank if the models differ: the error names the first parameter that
// does, the ranks and the shapes. Then the module stays the caller's, too.
Module *distributed_data_parallel(Module *module, ProcessGroup *group, const DdpConfig *config,
                                  Error *err);
// Gives the module back, with gradients of its own (None), and closes the wrapper. This is for
// wrapping it anew after an error.
Module *ddp_unwrap(Module *wrapper);
const DdpConfig *ddp_config(Module *wrapper);
Reducer *ddp_reducer(Module *wrapper);
ProcessGroup *ddp_group(Module *wrapper);
Module *ddp_module(Module *wrapper); // the wrapped one

// Waits for the gradients after tape_backward; see reducer_finish. Does nothing if the forward was
// under no_sync.
int ddp_finish_backward(Module *wrapper, Profile *profile, Error *err);

// PyTorch's no_sync: gradients of forwards between the two calls add up on this rank, undivided;
// the next backward outside reduces the sum. It is the forward that counts: what surrounds only the
// backward has no effect. May be nested: end takes what begin returned.
bool ddp_no_sync_begin(Module *wrapper);
void ddp_no_sync_end(Module *wrapper, bool before);

// Gives the wrapped model its one communication hook; see reducer_set_hook.
int ddp_register_comm_hook(Module *wrapper, CommHook hook, Error *err);

// Broadcasts rank `root`'s buffers now (before evaluating the bare module). Collective.
int ddp_sync_buffers(Module *wrapper, int root, Error *err);
// Makes all parameters and buffers rank `root`'s, after some rank changed its own. Collective.
int ddp_sync_module_states(Module *wrapper, int root, Error *err);

// ---- for features -----------------------------------------------------------------------------

// What the ranks do together before a forward: new buckets, once; rank root's buffers, if a
// backward has been reduced since they were last made equal. recording: gradients are wanted.
int ddp_begin_forward(Module *wrapper, bool recording, bool reduces, int root, Error *err);

#endif
