/* distributed_data_parallel.h: PyTorch's DistributedDataParallel: one process per device.
 *
 * Construction checks that all ranks hold the same model (names, shapes, dtypes), broadcasts rank
 * 0's parameters and buffers once, and attaches a Reducer to the parameters. From then on every
 * rank runs forward and backward on its own share of the batch, and the ranks exchange gradients
 * only: parameters stay equal because equal weights get equal updates. A forward first broadcasts
 * rank 0's buffers (batch norm's running statistics) if the previous backward was reduced.
 *
 * Optional features are in ddp/features. Each registers a CommHook, a ReadyPolicy or a DdpIteration
 * with the wrapper's Reducer.
 */
#ifndef DDP_DISTRIBUTED_DATA_PARALLEL_H
#define DDP_DISTRIBUTED_DATA_PARALLEL_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

typedef struct Reducer Reducer;   // features register with it
typedef struct CommHook CommHook; // ddp/comm_hook.h
typedef struct Profile Profile;   // the trainer's, for --profile; other programs pass NULL

typedef struct DdpConfig {
    double bucket_cap_mb; // negative: PyTorch's default (25 MiB, the first bucket 1 MiB)
    bool overlap;
    bool broadcast_buffers;
    bool global_normalization; // the loss is divided by the global batch: gradients are summed
    // Names of parameters and buffers to neither broadcast nor reduce, ended by NULL; or NULL.
    const char *const *ignored;
} DdpConfig;

DdpConfig ddp_config_default(void);

// Returns the wrapper, which owns the module; the group stays the caller's, who closes it after the
// wrapper, because the gradients are in its memory. Collective. NULL with err filled on every rank
// if the models differ: the error names the first differing parameter, the ranks and the shapes;
// the module then stays the caller's.
Module *distributed_data_parallel(Module *module, ProcessGroup *group, const DdpConfig *config,
                                  Error *err);
// Closes the wrapper and returns the module, whose gradients are None. For wrapping the module
// again after an error.
Module *ddp_unwrap(Module *wrapper);
const DdpConfig *ddp_config(Module *wrapper);
Reducer *ddp_reducer(Module *wrapper);
ProcessGroup *ddp_group(Module *wrapper);
Module *ddp_module(Module *wrapper); // the wrapped module

// Waits for the gradients after tape_backward; see reducer_finish. Does nothing if the forward was
// under no_sync.
int ddp_finish_backward(Module *wrapper, Profile *profile, Error *err);

// PyTorch's no_sync: gradients of forwards between the two calls accumulate on this rank,
// undivided; the next backward of a forward outside reduces the sum. The forward decides, not the
// backward. May be nested: end takes the value that begin returned.
bool ddp_no_sync_begin(Module *wrapper);
void ddp_no_sync_end(Module *wrapper, bool before);

// Sets the wrapped model's single communication hook; see reducer_set_hook.
int ddp_register_comm_hook(Module *wrapper, CommHook hook, Error *err);

// Broadcasts rank `root`'s buffers now (before evaluating the bare module). Collective.
int ddp_sync_buffers(Module *wrapper, int root, Error *err);
// Broadcasts rank `root`'s parameters and buffers, after a rank changed its own. Collective.
int ddp_sync_module_states(Module *wrapper, int root, Error *err);

// ---- for features -----------------------------------------------------------------------------

// The collectives before a forward: rebuilds the buckets, once; broadcasts rank root's buffers if a
// backward was reduced since the last broadcast. recording: the tape records a backward. 0 or -1.
int ddp_begin_forward(Module *wrapper, bool recording, bool reduces, int root, Error *err);

#endif
