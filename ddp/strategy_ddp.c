/* strategy_ddp.c: the trainer's Strategy and Job of one rank of DistributedDataParallel. */
#include "ddp/strategy_ddp.h"

#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/reducer.h"
#include "ddp/strategy_ranks.h"

// ---- the device ---------------------------------------------------------------------------------

Device *ddp_open_device(const TrainConfig *config, const Rendezvous *me, Error *err) {
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    TrainConfig mine = *config;
    const bool by_number = !me->fake_hosts && !me->own_gpu;
    int needed = by_number ? me->local_world_size : 1, index = me->local_rank;
    mine.device = train_device_kind(config, needed, me->local_rank == 0);
    int devices = device_available(mine.device);
    if (devices > 0 && devices < me->local_world_size) { // 0: train_open_device reports the error
        if (by_number)
            return error_null(
                err, STATUS_USAGE,
                "%d ranks and %d GPU%s on this host: start one rank per GPU (ddprun "
                "--nproc-per-node gpu), or, for correctness only, ddprun --fake-hosts",
                me->local_world_size, devices, devices == 1 ? "" : "s");
        index = 0;
    }
    Device *device = train_open_device(&mine, index, err);
    if (device && me->fake_hosts && me->rank == 0 && !device_is_cpu(device))
        fprintf(stderr, "fake hosts: ranks may share a GPU, and the times below mean nothing\n");
    return device;
}

// ---- the strategy -------------------------------------------------------------------------------

static void hold_gradients(Strategy *self, bool hold) {
    if (hold)
        ddp_no_sync_begin(self->module);
    else
        ddp_no_sync_end(self->module, false);
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    int status = ddp_finish_backward(self->module, tape->profile, err);
    strategy_ranks_profile(self, tape->profile);
    return status;
}

static int sync_buffers(Strategy *self, Error *err) {
    return ddp_sync_buffers(self->module, 0, err);
}

Strategy *strategy_ddp(Module *wrapper, Device *device, Sampler *sampler) {
    Strategy *strategy =
        strategy_ranks(ddp_module(wrapper), wrapper, ddp_group(wrapper), device, sampler);
    strategy->global_mean = ddp_config(wrapper)->global_normalization;
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sync_buffers = sync_buffers;
    return strategy;
}

// ---- the job ------------------------------------------------------------------------------------

static Reducer *reducer_of(const Job *self) {
    return ddp_reducer(self->strategy->module);
}

static int save_state(Job *self, const Optimizer *optimizer, SafeTensors *state, Error *err) {
    (void)optimizer; // the hook has it
    const CommHook *hook = &reducer_of(self)->hook;
    if (hook->save(hook->state, state, err) == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s: save failed and did not say why", hook->name);
}

static int load_state(Job *self, const char *path, const SafeTensors *state, RunLog *log,
                      Error *err) {
    const CommHook *hook = &reducer_of(self)->hook;
    if (hook->load(hook->state, path, state, log, err) == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s: load failed and did not say why", hook->name);
}

static const char *unrecordable(const Job *self) {
    bool synced = self->devices > 1 && module_has_type(self->strategy->module, "SyncBatchNorm");
    return synced ? "SyncBatchNorm" : reducer_unrecordable(reducer_of(self));
}

Job *job_ddp(Strategy *strategy, const Rendezvous *me) {
    Job *job = job_ranks(strategy, me);
    const CommHook *hook = &reducer_of(job)->hook;
    job->sharding = hook->sharding;
    job->unrecordable = unrecordable;
    if (!hook->save) return job;
    job->save_state = save_state; // the hook's memory
    job->load_state = load_state;
    return job;
}
