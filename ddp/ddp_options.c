/* ddp_options.c: the options of DistributedDataParallel, with PyTorch's defaults. */
#include "ddp/ddp_options.h"

#include <string.h>

#include "ddp/strategy_ranks.h"

DdpOptions ddp_options_default(void) {
    return (DdpOptions){.backend = "auto",
                        .normalize = "average",
                        .sampler = "interleaved",
                        .timeout_s = 1800,
                        .config = ddp_config_default()};
}

void ddp_options_of_ranks(Options *options, DdpOptions *ddp) {
    Options *o = options;
    options_add_choice(o, "backend", &ddp->backend, "auto|shm|mpi|nccl", "how ranks communicate");
    options_add_flag(o, "no-overlap", &ddp->no_overlap, "start communication only after backward");
    options_add_choice(o, "normalize", &ddp->normalize, "average|global",
                       "average the ranks' mean gradients (PyTorch), or divide by the rows of "
                       "the global batch and sum");
    options_add_choice(o, "sampler", &ddp->sampler, "interleaved|blocked",
                       "PyTorch's DistributedSampler, or the chunks that DataParallel would "
                       "give its devices");
    options_add_float(o, "timeout-s", &ddp->timeout_s, 0.001, 1e6,
                      "how long a rank waits for the others before it gives up");
}

void ddp_options(Options *options, DdpOptions *ddp) {
    options_add_title(options, "DistributedDataParallel");
    ddp_options_of_ranks(options, ddp);
    options_add_float(options, "bucket-cap-mb", &ddp->config.bucket_cap_mb, -1, 1e6,
                      "MiB per gradient bucket; 0: every gradient alone; negative: PyTorch's "
                      "25 after a first one of 1");
    options_add_flag(options, "no-broadcast-buffers", &ddp->no_broadcast_buffers,
                     "leave every rank its own running statistics while training");
    own_files_options(options, &ddp->own);
    features_add_options(options, &ddp->features);
}

void ddp_options_derive(DdpOptions *ddp) {
    ddp->config.overlap = !ddp->no_overlap;
    ddp->config.broadcast_buffers = !ddp->no_broadcast_buffers;
    ddp->config.global_normalization = strcmp(ddp->normalize, "global") == 0;
    ddp->blocked = strcmp(ddp->sampler, "blocked") == 0;
}

int ddp_options_check(DdpOptions *ddp, const Options *options, Error *err) {
    ddp_options_derive(ddp);
    if (own_files_check(&ddp->own, options, ddp->features.options[0], err) != 0) return -1;
    return features_check(options, &ddp->features, err);
}

int ddp_options_prepare(const DdpOptions *ddp, const TrainConfig *config, const DataSource *data,
                        Module *model, ProcessGroup *group, Error *err) {
    if (strategy_ranks_check_data(config, data, group, err) != 0) return -1;
    if (ddp->no_broadcast_buffers && module_count(model, MODULE_BUFFERS) == 0)
        return error_set(err, STATUS_USAGE,
                         "--no-broadcast-buffers has no effect: the model has no buffers");
    if (own_all_reduce_use(&ddp->own, group, err) != 0) return -1;
    return features_prepare_model(&ddp->features, model, group, err);
}
