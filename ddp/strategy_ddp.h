/* strategy_ddp.h: DistributedDataParallel as a Strategy for the trainer. */
#ifndef DDP_STRATEGY_DDP_H
#define DDP_STRATEGY_DDP_H

#include "common/train/strategy.h"
#include "ddp/group/process_group.h"
#include "ddp/rendezvous/heartbeat.h"

// Owns everything it is given from now on. sampler: "interleaved" (DistributedSampler) or
// "blocked".
Strategy *strategy_ddp(Module *model, Module *wrapper, ProcessGroup *group, Device *device,
                       const char *sampler);
// Lets the launcher see this rank's phase and step. Takes the heartbeat (NULL is fine). Call before
// the first step.
void strategy_ddp_set_heartbeat(Strategy *strategy, Heartbeat *heartbeat);

#endif
