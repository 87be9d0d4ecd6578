/* options.h: train_ddp's own options, besides the ones that all trainers share
 * (common/train/options.c). */
#ifndef DDP_OPTIONS_H
#define DDP_OPTIONS_H

#include "common/base/options.h"
#include "ddp/distributed_data_parallel.h"

typedef struct DdpOptions {
    const char *backend;   // "auto", "shm", "mpi", "nccl"
    const char *normalize; // "average", "global"
    const char *sampler;   // "interleaved", "blocked"
    double bucket_cap_mb, timeout_s;
    bool no_overlap, no_broadcast_buffers;
} DdpOptions;

DdpOptions ddp_options_default(void);
void ddp_options(Options *options, DdpOptions *ddp); // appends them, bound to ddp
DdpConfig ddp_options_config(const DdpOptions *ddp);

#endif
