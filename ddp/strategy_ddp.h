/* strategy_ddp.h: the trainer's Strategy and Job of one rank of DistributedDataParallel. */
#ifndef DDP_STRATEGY_DDP_H
#define DDP_STRATEGY_DDP_H

#include "common/train/job.h"
#include "ddp/ddp_options.h"
#include "ddp/rendezvous/init.h"

// Returns this rank's device, or NULL with err filled: the device of its local rank, or with fake
// hosts and too few GPUs the first. --device auto chooses GPUs if every rank of the host gets one.
Device *ddp_open_device(const TrainConfig *config, const Rendezvous *me, Error *err);

// Returns the Strategy of a wrapper of distributed_data_parallel.
Strategy *strategy_ddp(Module *wrapper, Device *device, Sampler *sampler);

// Returns the Job of that strategy. Owns the strategy, its wrapper, group, device and sampler.
// Starts reporting this rank's phase and step to the launcher.
Job *job_ddp(Strategy *strategy, const Rendezvous *me);

#endif
