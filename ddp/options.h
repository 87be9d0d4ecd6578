/* options.h: train_ddp's own options, besides the ones that all trainers share
 * (common/train/options.c). */
#ifndef DDP_OPTIONS_H
#define DDP_OPTIONS_H

#include "common/base/options.h"
#include "common/train/setup.h"
#include "ddp/features/features.h"

typedef struct DdpOptions {
    const char *backend;   // "auto", "shm", "mpi", "nccl"
    const char *normalize; // "average", "global"
    const char *sampler;   // "interleaved", "blocked"
    double timeout_s;
    bool no_overlap, no_broadcast_buffers;
    // What follows from them, by ddp_options_check:
    DdpConfig config;
    bool blocked; // sampler_blocked, not distributed_sampler
    FeatureSettings features;
} DdpOptions;

DdpOptions ddp_options_default(void);
void ddp_options(Options *options, DdpOptions *ddp); // appends them, bound to ddp
// Completes ddp when the options have been parsed. Refuses what was given and would have no effect.
// Returns 0, or -1 with err filled, as the others.
int ddp_options_check(DdpOptions *ddp, const Options *options, Error *err);
// Before the model is wrapped: refuses data of another shape than the other ranks have, lets the
// features change the model (--sync-batch-norm), and refuses options for what it does not have.
int ddp_options_prepare(const DdpOptions *ddp, const TrainConfig *config, const DataSource *data,
                        Module *model, ProcessGroup *group, Error *err);
// After the model is wrapped: adds the features that were asked for, and the communication hook
// that was chosen. Refuses what would have no effect in a run of `steps` steps.
int ddp_options_add_features(const DdpOptions *ddp, Module *wrapper, size_t steps, Error *err);

#endif
