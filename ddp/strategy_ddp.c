/* strategy_ddp.c: DistributedDataParallel for the trainer: a rank's share of the data, and sums. */
#include "ddp/strategy_ddp.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/nn/tape.h"
#include "common/train/checks.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/reducer.h"
#include "ddp/rendezvous/rank_watch.h"

enum { COMM_SPANS = 1 << 16 };

typedef struct DdpStrategy {
    ProcessGroup *group;
    uint64_t bucket_ns; // that pg_totals had at the end of the last step
} DdpStrategy;

static DdpStrategy *state_of(const Strategy *self) {
    return self->state;
}

// ---- the device ---------------------------------------------------------------------------------

// Returns the index of this rank's device, or -1 with err filled if there are fewer GPUs than
// ranks, unless the ranks may share one.
static int choose_device(const Rendezvous *me, const char *kind, Error *err) {
    int devices = device_available(kind);
    if (devices == 0 || me->local_world_size <= devices) // 0: opening it will say why
        return me->local_rank;
    if (me->fake_hosts) return 0;
    return error_set(err, STATUS_USAGE,
                     "%d ranks and %d GPU%s on this host: start one rank per GPU (ddprun "
                     "--nproc-per-node gpu), or, for correctness only, ddprun --fake-hosts",
                     me->local_world_size, devices, devices == 1 ? "" : "s");
}

Device *ddp_open_device(const TrainConfig *config, const Rendezvous *me, Error *err) {
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    TrainConfig mine = *config;
    int needed = me->fake_hosts ? 1 : me->local_world_size;
    mine.device = train_device_kind(config, needed, me->local_rank == 0);
    int index = choose_device(me, mine.device, err);
    Device *device = index < 0 ? NULL : train_open_device(&mine, index, err);
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
    uint64_t before = state_of(self)->bucket_ns, now = pg_totals(state_of(self)->group).bucket_ns;
    profile_communication(tape->profile, now - before);
    state_of(self)->bucket_ns = now;
    return status;
}

static void *start_sum(Strategy *self, double *values, size_t count, Error *err) {
    return pg_start(state_of(self)->group, pg_all_reduce(values, count, PG_F64, PG_SUM), err);
}

static int wait_for_sum(Strategy *self, void *sum, Error *err) {
    (void)self;
    return work_wait(sum, NULL, NULL, err);
}

int strategy_ddp_check_data(const TrainConfig *config, const DataSource *data, ProcessGroup *group,
                            Error *err) {
    Strategy ranks = {.devices = pg_size(group),
                      .all_count = 1,
                      .rank = pg_rank(group),
                      .sum_start = start_sum,
                      .sum_wait = wait_for_sum,
                      .state = &(DdpStrategy){.group = group}};
    return checks_same_shapes(&ranks, config, data, err);
}

static int sync_buffers(Strategy *self, Error *err) {
    return ddp_sync_buffers(self->module, 0, err);
}

static int save_state(Strategy *self, SafeTensors *state, Error *err) {
    const CommHook *hook = reducer_hook(ddp_reducer(self->module));
    if (hook->save(hook->state, state, err) == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s: save failed and did not say why", hook->name);
}

static int load_state(Strategy *self, const char *path, const SafeTensors *state, Log *log,
                      Error *err) {
    const CommHook *hook = reducer_hook(ddp_reducer(self->module));
    if (hook->load(hook->state, path, state, log, err) == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s: load failed and did not say why", hook->name);
}

static const char *unrecordable(const Strategy *self) {
    bool synced = self->devices > 1 && module_has_type(self->module, "SyncBatchNorm");
    return synced ? "SyncBatchNorm" : reducer_unrecordable(ddp_reducer(self->module));
}

static uint64_t moved_bytes(const Strategy *self) {
    return pg_moved_bytes(state_of(self)->group);
}

static void set_trace(Strategy *self, Trace *trace) {
    pg_set_trace(state_of(self)->group, trace, trace_track(trace, "comm", COMM_SPANS));
}

static void close_ddp(Strategy *self) {
    module_close(self->module); // and with it the model
    pg_close(state_of(self)->group);
    sampler_close(self->sampler);
    device_close(self->device);
    rank_watch_close(self->watch);
    free(self->state);
    free(self);
}

static const char *other_bits(Module *wrapper, const Sampler *sampler) {
    const CommHook *hook = reducer_hook(ddp_reducer(wrapper));
    if (hook->name && !hook->sharding && strcmp(hook->name, "allreduce") != 0)
        return "--comm-hook changes gradients";
    if (!pg_sums_in_rank_order(ddp_group(wrapper))) return "--fast-sums adds in another order";
    if (module_has_type(wrapper, "SyncBatchNorm")) return "DataParallel has no SyncBatchNorm";
    return sampler->interleaved ? "interleaved sampler: --sampler blocked" : NULL;
}

Strategy *strategy_ddp(Module *wrapper, ProcessGroup *group, Device *device, Sampler *sampler,
                       const Rendezvous *me) {
    Strategy *strategy = strategy_single(ddp_module(wrapper), device, sampler);
    strategy->state = memory_zalloc(sizeof(DdpStrategy));
    state_of(strategy)->group = group;
    strategy->name = "ddp";
    strategy->backend = pg_backend(group);
    strategy->devices = pg_size(group);
    strategy->rank = pg_rank(group);
    strategy->fake_hosts = me->fake_hosts;
    strategy->global_mean = ddp_config(wrapper)->global_normalization;
    strategy->other_bits = other_bits(wrapper, sampler);
    strategy->module = wrapper;
    strategy->sharding = reducer_hook(ddp_reducer(wrapper))->sharding;
    strategy->watch = rank_watch_open(group, me->local_rank);
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sum_start = start_sum;
    strategy->sum_wait = wait_for_sum;
    strategy->sync_buffers = sync_buffers;
    strategy->unrecordable = unrecordable;
    strategy->moved_bytes = moved_bytes;
    strategy->set_trace = set_trace;
    strategy->close = close_ddp;
    if (!reducer_hook(ddp_reducer(wrapper))->save) return strategy;
    strategy->save_state = save_state; // the hook's memory
    strategy->load_state = load_state;
    return strategy;
}
