/* options.c: the options of DistributedDataParallel, with PyTorch's defaults. */
#include "ddp/options.h"

#include <string.h>

DdpOptions ddp_options_default(void) {
    return (DdpOptions){.backend = "auto",
                        .normalize = "average",
                        .sampler = "interleaved",
                        .timeout_s = 1800,
                        .config = ddp_config_default()};
}

void ddp_options(Options *options, DdpOptions *ddp) {
    Options *o = options;
    options_add_title(o, "DistributedDataParallel");
    options_add_choice(o, "backend", &ddp->backend, "auto|shm|nccl", "how the ranks communicate");
    options_add_float(o, "bucket-cap-mb", &ddp->config.bucket_cap_mb, -1, 1e6,
                      "MiB per gradient bucket; 0: every gradient alone; negative: PyTorch's "
                      "25 after a first one of 1");
    options_add_flag(o, "no-overlap", &ddp->no_overlap, "start communication only after backward");
    options_add_choice(o, "normalize", &ddp->normalize, "average|global",
                       "average the ranks' mean gradients (PyTorch), or divide by the rows of "
                       "the global batch and sum");
    options_add_choice(o, "sampler", &ddp->sampler, "interleaved|blocked",
                       "PyTorch's DistributedSampler, or the chunks that DataParallel would "
                       "give its devices");
    options_add_flag(o, "no-broadcast-buffers", &ddp->no_broadcast_buffers,
                     "leave every rank its own running statistics while training");
    options_add_float(o, "timeout-s", &ddp->timeout_s, 0.001, 1e6,
                      "how long a rank waits for the others before it gives up");
    features_add_options(o, &ddp->features);
}

int ddp_options_check(const DdpOptions *ddp, const Options *options, Error *err) {
    return features_check(options, &ddp->features, err);
}

// Fewer GPUs than ranks: an error if GPUs were asked for, unless the ranks may share one.
static int place(const TrainConfig *config, const Rendezvous *me, TrainConfig *mine, int *index,
                 Error *err) {
    *mine = *config;
    int needed = me->fake_hosts ? 1 : me->local_world_size;
    mine->device = train_device_kind(config, needed, me->local_rank == 0);
    *index = me->local_rank;
    int devices = device_available(mine->device);
    if (devices == 0 || me->local_world_size <= devices) return 0; // 0: opening it will say why
    if (me->fake_hosts) {
        *index = 0;
        return 0;
    }
    return error_set(err, STATUS_USAGE,
                     "%d ranks and %d GPU%s on this host: start one rank per GPU (ddprun "
                     "--nproc-per-node gpu), or, for correctness only, ddprun --fake-hosts",
                     me->local_world_size, devices, devices == 1 ? "" : "s");
}

Device *ddp_options_open(const TrainConfig *config, Rendezvous *me, Error *err) {
    TrainConfig mine;
    int index;
    if (init_from_env(me, true, err) != 0) return NULL;
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    return place(config, me, &mine, &index, err) ? NULL : train_open_device(&mine, index, err);
}

ProcessGroup *ddp_options_join(const DdpOptions *ddp, const Rendezvous *me, Device *device,
                               Error *err) {
    if (me->fake_hosts && me->rank == 0 && !device->kernels->host_memory)
        fprintf(stderr, "fake hosts: ranks may share a GPU, and the times below mean nothing\n");
    return init_process_group(ddp->backend, me, device, ddp->timeout_s, err);
}

// An option that only a model can leave without effect.
static int check_model(const DdpOptions *ddp, Module *model, Error *err) {
    NamedTensors buffers = module_tensors(model, MODULE_BUFFERS);
    const size_t count = buffers.count;
    named_tensors_free(&buffers);
    if (ddp->no_broadcast_buffers && count == 0)
        return error_set(err, STATUS_USAGE,
                         "--no-broadcast-buffers has no effect: the model has no buffers");
    return 0;
}

Module *ddp_options_wrap(const DdpOptions *ddp, Module *model, ProcessGroup *group, Error *err) {
    DdpConfig config = ddp->config;
    config.overlap = !ddp->no_overlap;
    config.broadcast_buffers = !ddp->no_broadcast_buffers;
    config.global_normalization = strcmp(ddp->normalize, "global") == 0;
    if (check_model(ddp, model, err)) return NULL;
    if (features_prepare_model(&ddp->features, model, group, err)) return NULL;
    Module *wrapper = distributed_data_parallel(model, group, &config, err);
    if (!wrapper || features_add_to(&ddp->features, wrapper, err) == 0) return wrapper;
    ddp_unwrap(wrapper); // the model stays the caller's
    return NULL;
}
