/* options.c: the options of DistributedDataParallel, with PyTorch's defaults. */
#include "ddp/options.h"

#include <string.h>

#include "ddp/comm_hooks.h"
#include "ddp/debug_level.h"
#include "ddp/powersgd_hook.h"
#include "ddp/sync_batch_norm.h"

DdpOptions ddp_options_default(void) {
    return (DdpOptions){.backend = "auto",
                        .normalize = "average",
                        .sampler = "interleaved",
                        .comm_hook = "none",
                        .powersgd_rank = 1,
                        .powersgd_start = 1000,
                        .bucket_cap_mb = -1,
                        .timeout_s = 1800};
}

void ddp_options(Options *options, DdpOptions *ddp) {
    Options *o = options;
    options_add(o, (Option){.type = OPTION_TITLE, .help = "DistributedDataParallel"});
    options_add(o, (Option){"backend", OPTION_CHOICE, &ddp->backend, "auto|shm|mpi|nccl", 0, 0,
                            "how the ranks communicate"});
    options_add(o, (Option){"bucket-cap-mb", OPTION_FLOAT, &ddp->bucket_cap_mb, "F", -1, 1e6,
                            "MiB per gradient bucket; 0: every gradient alone; negative: PyTorch's "
                            "25 after a first one of 1"});
    options_add(o, (Option){"no-overlap", OPTION_FLAG, &ddp->no_overlap, NULL, 0, 0,
                            "start communication only after backward"});
    options_add(o, (Option){"normalize", OPTION_CHOICE, &ddp->normalize, "average|global", 0, 0,
                            "average the ranks' mean gradients (PyTorch), or divide by the rows of "
                            "the global batch and sum"});
    options_add(o, (Option){"sampler", OPTION_CHOICE, &ddp->sampler, "interleaved|blocked", 0, 0,
                            "PyTorch's DistributedSampler, or the chunks that DataParallel would "
                            "give its devices"});
    options_add(o, (Option){"no-broadcast-buffers", OPTION_FLAG, &ddp->no_broadcast_buffers, NULL,
                            0, 0, "leave every rank its own running statistics while training"});
    options_add(o, (Option){"sync-batch-norm", OPTION_FLAG, &ddp->sync_batch_norm, NULL, 0, 0,
                            "batch norm over the rows of all ranks (SyncBatchNorm)"});
    options_add(o, (Option){"comm-hook", OPTION_CHOICE, &ddp->comm_hook,
                            "none|allreduce|fp16|bf16|powersgd|noop", 0, 0,
                            "what is done with a full bucket (noop: nothing, the bound for any "
                            "network)"});
    options_add(o, (Option){"powersgd-rank", OPTION_SIZE, &ddp->powersgd_rank, "N", 1, 1e6,
                            "columns of the matrices that travel"});
    options_add(o, (Option){"powersgd-start", OPTION_SIZE, &ddp->powersgd_start, "N", 2, 1e15,
                            "steps with a plain all-reduce before it"});
    options_add(o, (Option){"find-unused-parameters", OPTION_FLAG, &ddp->find_unused_parameters,
                            NULL, 0, 0,
                            "expect no gradient of parameters that the loss does not "
                            "depend on"});
    options_add(o, (Option){"static-graph", OPTION_FLAG, &ddp->static_graph, NULL, 0, 0,
                            "expect the graph of the first step in all others"});
    options_add(o, (Option){"timeout-s", OPTION_FLOAT, &ddp->timeout_s, "F", 0.001, 1e6,
                            "how long a rank waits for the others before it gives up"});
}

int ddp_options_check(const DdpOptions *ddp, const Options *options, Error *err) {
    const bool powersgd = strcmp(ddp->comm_hook, "powersgd") == 0;
    const OptionUse uses[] = {
        {"powersgd-rank", powersgd, "it needs --comm-hook powersgd"},
        {"powersgd-start", powersgd, "it needs --comm-hook powersgd"},
        {"find-unused-parameters", !ddp->static_graph, "--static-graph finds them by itself"},
    };
    return options_check_used(options, uses, sizeof uses / sizeof *uses, err);
}

DdpConfig ddp_options_config(const DdpOptions *ddp) {
    return (DdpConfig){.bucket_cap_mb = ddp->bucket_cap_mb,
                       .overlap = !ddp->no_overlap,
                       .broadcast_buffers = !ddp->no_broadcast_buffers,
                       .global_normalization = strcmp(ddp->normalize, "global") == 0,
                       .find_unused_parameters = ddp->find_unused_parameters,
                       .static_graph = ddp->static_graph};
}

static void close_power_sgd(void *state) {
    power_sgd_close(state);
}

static CommHook power_sgd(const DdpOptions *ddp, Module *wrapper, Error *err) {
    PowerSgdConfig config = power_sgd_config_default();
    config.rank = ddp->powersgd_rank;
    config.start_iteration = ddp->powersgd_start;
    PowerSgd *state = power_sgd_create(ddp_reducer(wrapper), &config, err);
    if (!state) return (CommHook){.name = NULL};
    CommHook hook = power_sgd_hook(state);
    hook.close = close_power_sgd; // nobody else keeps it
    return hook;
}

static int register_hook(const DdpOptions *ddp, Module *wrapper, Error *err) {
    const char *name = ddp->comm_hook;
    ProcessGroup *group = ddp_group(wrapper);
    CommHook hook = strcmp(name, "fp16") == 0       ? comm_hook_compress(group, PG_F16)
                    : strcmp(name, "bf16") == 0     ? comm_hook_compress(group, PG_BF16)
                    : strcmp(name, "powersgd") == 0 ? power_sgd(ddp, wrapper, err)
                    : strcmp(name, "noop") == 0     ? comm_hook_noop()
                                                    : comm_hook_all_reduce(group);
    return ddp_register_comm_hook(wrapper, hook, err);
}

int ddp_options_place(const char *kind, Rendezvous *me, int *index, Error *err) {
    if (init_from_env(me, true, err) != 0) return -1;
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    *index = me->local_rank;
    int devices = device_available(kind);
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

ProcessGroup *ddp_options_join(const DdpOptions *ddp, const Rendezvous *me, Device *device,
                               Error *err) {
    if (me->fake_hosts && me->rank == 0 && !device->kernels->host_memory)
        fprintf(stderr, "fake hosts: ranks may share a GPU, and the times below mean nothing\n");
    return init_process_group(ddp->backend, me, device, ddp->timeout_s, err);
}

// At debug level INFO, how this rank's model is wrapped.
static void tell(Module *wrapper) {
    DebugLevel level;
    if (debug_level_read(&level, NULL) != 0 || level < DEBUG_INFO) return;
    const DdpLoggingData data = ddp_logging_data(wrapper);
    ddp_logging_print(&data, stderr);
}

// Options that only a model can leave without effect.
static int check_model(const DdpOptions *ddp, Module *wrapper, Error *err) {
    if (ddp->sync_batch_norm && !ddp_logging_data(wrapper).has_sync_bn)
        return error_set(err, STATUS_USAGE,
                         "--sync-batch-norm has no effect: the model has no batch norm");
    NamedTensors buffers = module_tensors(wrapper, MODULE_BUFFERS);
    const size_t count = buffers.count;
    named_tensors_free(&buffers);
    if (ddp->no_broadcast_buffers && count == 0)
        return error_set(err, STATUS_USAGE,
                         "--no-broadcast-buffers has no effect: the model has no buffers");
    return 0;
}

Module *ddp_options_wrap(const DdpOptions *ddp, Module *model, ProcessGroup *group, Error *err) {
    const DdpConfig config = ddp_options_config(ddp);
    if (ddp->sync_batch_norm && !sync_batch_norm_convert(model, group, err)) return NULL;
    Module *wrapper = distributed_data_parallel(model, group, &config, err);
    if (!wrapper) return NULL;
    const bool hook = strcmp(ddp->comm_hook, "none") != 0;
    if (check_model(ddp, wrapper, err) || (hook && register_hook(ddp, wrapper, err))) {
        ddp_unwrap(wrapper); // the model stays the caller's
        return NULL;
    }
    tell(wrapper);
    return wrapper;
}
