/* distributed_data_parallel.h: PyTorch's DistributedDataParallel: one process per device.
 *
 * Construction checks that all ranks hold the same model (names, shapes, dtypes), broadcasts rank
 * 0's parameters and buffers once, and hangs a Reducer on the parameters. From then on every rank
 * runs forward and backward on its own share of the batch, and only gradients travel: parameters
 * stay equal because equal weights get equal updates. Each training forward broadcasts rank 0's
 * buffers (batch norm's running statistics) first.
 */
#ifndef DDP_DISTRIBUTED_DATA_PARALLEL_H
#define DDP_DISTRIBUTED_DATA_PARALLEL_H

#include "common/train/strategy.h"
#include "ddp/heartbeat.h"
#include "ddp/process_group.h"
#include "ddp/reducer.h"

typedef struct DdpConfig {
    double bucket_cap_mb; // negative: PyTorch's default (25 MiB, the first bucket 1 MiB)
    bool overlap;
    bool broadcast_buffers;
    bool global_normalization; // the loss is divided by the global batch: sum, do not average
} DdpConfig;

DdpConfig ddp_config_default(void);

// Wraps the module; takes it, not the group. Collective. NULL with err filled on every rank if the
// models differ; the error names the first parameter that does, the ranks and the shapes. Then the
// module stays the caller's.
Module *distributed_data_parallel(Module *module, ProcessGroup *group, const DdpConfig *config,
                                  Error *err);
const DdpConfig *ddp_config(Module *wrapper);
Reducer *ddp_reducer(Module *wrapper);
// Broadcasts rank 0's buffers now (before evaluating the bare module). Collective.
int ddp_sync_buffers(Module *wrapper, Error *err);
// Waits for the gradients after tape_backward; see reducer_finish.
int ddp_finish_backward(Module *wrapper, Profile *profile, Error *err);

// The Strategy for the trainer. Owns everything it is given from now on. sampler: "interleaved"
// (DistributedSampler) or "blocked".
Strategy *strategy_ddp(Module *model, Module *wrapper, ProcessGroup *group, Device *device,
                       const char *sampler);
// Lets the launcher see this rank's phase, step and collective. Takes the heartbeat (NULL is fine).
// Call before the first step.
void strategy_ddp_set_heartbeat(Strategy *strategy, Heartbeat *heartbeat);

#endif
