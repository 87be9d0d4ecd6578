/* options.h: train_ddp's own options, besides the ones that all trainers share
 * (common/train/options.c). */
#ifndef DDP_OPTIONS_H
#define DDP_OPTIONS_H

#include "common/train/trainer.h"
#include "ddp/features/features.h"
#include "ddp/rendezvous/init.h"

typedef struct DdpOptions {
    const char *backend;   // "auto", "shm", "nccl"
    const char *normalize; // "average", "global"
    const char *sampler;   // "interleaved", "blocked"
    double timeout_s;
    bool no_overlap, no_broadcast_buffers;
    DdpConfig config; // as far as options are bound to it; the rest is ddp_options_wrap's
    FeatureSettings features;
} DdpOptions;

DdpOptions ddp_options_default(void);
void ddp_options(Options *options, DdpOptions *ddp); // appends them, bound to ddp
// Refuses what was given and would have no effect. Returns 0, or -1 with err filled.
int ddp_options_check(const DdpOptions *ddp, const Options *options, Error *err);
// Finds which rank this process is, by the environment (init.h; alone if it speaks of none), and
// opens its device: the one of its local rank, or with fake hosts the first for all if there are
// too few. --device auto takes GPUs if there is one for each rank. NULL with err filled.
Device *ddp_options_open(const TrainConfig *config, Rendezvous *me, Error *err);
// Meets the other ranks. device: this rank's. NULL with err filled.
ProcessGroup *ddp_options_join(const DdpOptions *ddp, const Rendezvous *me, Device *device,
                               Error *err);
// Wraps the model as the options say: lets the features prepare it, calls
// distributed_data_parallel, whose rules hold, and registers the communication hook. Also an error:
// an option for what the model does not have.
Module *ddp_options_wrap(const DdpOptions *ddp, Module *model, ProcessGroup *group, Error *err);

#endif
