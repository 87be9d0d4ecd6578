/* ddp_options.h: train_ddp's own options, in addition to the three programs' common ones
 * (common/train/train_options.c).
 *
 *     ddp_options_default, ddp_options     before parsing: defaults, rows of --help
 *     ddp_options_check                    after parsing
 *     ddp_options_prepare                  model exists, not wrapped
 *     features_add_to (features.h)         model wrapped
 *
 * The last three reject options without effect. They return 0, or -1 with err filled.
 */
#ifndef DDP_DDP_OPTIONS_H
#define DDP_DDP_OPTIONS_H

#include "common/base/options.h"
#include "common/train/setup.h"
#include "ddp/features/features.h"
#include "ddp/own/own_wrapper.h"

typedef struct DdpOptions {
    const char *backend;   // "auto", "shm", "mpi", "nccl"
    const char *normalize; // "average", "global"
    const char *sampler;   // "interleaved", "blocked"
    double timeout_s;
    bool no_overlap, no_broadcast_buffers;
    OwnFiles own; // of the user: ddp/own
    // Set by ddp_options_check:
    DdpConfig config;
    bool blocked; // sampler_blocked, not distributed_sampler
    FeatureSettings features;
} DdpOptions;

DdpOptions ddp_options_default(void);
void ddp_options(Options *options, DdpOptions *ddp); // appends rows bound to ddp's fields
// Sets ddp's derived fields.
int ddp_options_check(DdpOptions *ddp, const Options *options, Error *err);
// The parts of both that are the same for every wrapper of ranks (ddp/fsdp).
void ddp_options_of_ranks(Options *options, DdpOptions *ddp);
void ddp_options_derive(DdpOptions *ddp);
// Checks that all ranks' samples have the same shape (collective), and applies the features that
// change the model (--sync-batch-norm).
int ddp_options_prepare(const DdpOptions *ddp, const TrainConfig *config, const DataSource *data,
                        Module *model, ProcessGroup *group, Error *err);

#endif
