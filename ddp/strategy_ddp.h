/* strategy_ddp.h: DistributedDataParallel for the trainer, one rank of it. */
#ifndef DDP_STRATEGY_DDP_H
#define DDP_STRATEGY_DDP_H

#include "common/train/strategy.h"
#include "ddp/options.h"
#include "ddp/rendezvous/init.h"

// The rank's own device: that of its local rank, or with fake hosts the first for all if there are
// too few. --device auto takes GPUs if there is one for each rank. NULL with err filled.
Device *ddp_open_device(const TrainConfig *config, const Rendezvous *me, Error *err);

// Before there is a Strategy: do all ranks have samples of the same shape? Collective. Returns 0,
// or -1 with err filled, which names the ranks that differ.
int strategy_ddp_check_data(const TrainConfig *config, const DataSource *data, ProcessGroup *group,
                            Error *err);

// The Strategy of a wrapper that distributed_data_parallel made. Owns everything but `me`, from now
// on. The launcher sees this rank's phase and step from here on.
Strategy *strategy_ddp(Module *wrapper, ProcessGroup *group, Device *device, Sampler *sampler,
                       const Rendezvous *me);

#endif
