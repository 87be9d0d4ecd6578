/* strategy_fsdp.h: the trainer's Strategy and Job of one rank of fully_shard, and its model. */
#ifndef DDP_FSDP_STRATEGY_FSDP_H
#define DDP_FSDP_STRATEGY_FSDP_H

#include "common/train/job.h"
#include "ddp/fsdp/fsdp_options.h"
#include "ddp/rendezvous/init.h"

// Builds the model without memory: names and shapes. fully_shard gives each rank its shards on
// `device`, then fsdp_fill_model fills them: the same weights as train_create_model's rank 0.
// Collective, because --save-init collects the model. NULL or -1 with err filled.
Module *fsdp_build_model(FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                         Device *device, ProcessGroup *group, Error *err);
int fsdp_fill_model(FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                    Module *model, Error *err);

// Checks that all ranks' samples have the same shape, and applies --sync-batch-norm. Part of
// fsdp_build_model. Collective. 0, or -1 with err filled.
int fsdp_prepare_model(const FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                       Module *model, ProcessGroup *group, Error *err);

// Returns the Strategy of a model whose root is a unit.
Strategy *strategy_fsdp(Module *model, const FsdpOptions *fsdp, Device *device, Sampler *sampler);

// Returns the Job of that strategy. Owns the strategy, its model, group, device and sampler.
Job *job_fsdp(Strategy *strategy, const Rendezvous *me);
// The same for any strategy whose model's parameters are shards, as ddp/fsdp/own has one.
Job *job_sharded(Strategy *strategy, OptimizerSharding *sharding, const Rendezvous *me);

#endif
