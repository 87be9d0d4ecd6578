/* strategy_ddp.c: the trainer's Strategy and Job of one rank of DistributedDataParallel. */
#include "ddp/strategy_ddp.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "common/train/checks.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/reducer.h"

enum { COMM_SPANS = 1 << 16 };

typedef struct DdpStrategy {
    JobWatch watch; // must be the first field: its functions are given a pointer to it
    ProcessGroup *group;
    uint64_t bucket_ns; // pg_totals' bucket_ns at the end of the last step
} DdpStrategy;

static DdpStrategy *state_of(const Strategy *self) {
    return self->state;
}

// ---- the watch ----------------------------------------------------------------------------------

// Phases and steps go to the group's observer, and a failure of this rank breaks the group.
static void enter_phase(const JobWatch *self, const char *phase, uint64_t step) {
    pg_enter(((const DdpStrategy *)self)->group, phase, step);
}

static int check_group(const JobWatch *self, Error *err) {
    return pg_check_sound(((const DdpStrategy *)self)->group, err);
}

static void give_up(const JobWatch *self, const Error *cause) {
    (void)pg_abort(((const DdpStrategy *)self)->group, cause);
}

// ---- the device ---------------------------------------------------------------------------------

Device *ddp_open_device(const TrainConfig *config, const Rendezvous *me, Error *err) {
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    TrainConfig mine = *config;
    int needed = me->fake_hosts ? 1 : me->local_world_size, index = me->local_rank;
    mine.device = train_device_kind(config, needed, me->local_rank == 0);
    int devices = device_available(mine.device);
    if (devices > 0 && devices < me->local_world_size) { // 0: train_open_device reports the error
        if (!me->fake_hosts)
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
    return pg_work_wait(sum, NULL, NULL, err);
}

static int sync_buffers(Strategy *self, Error *err) {
    return ddp_sync_buffers(self->module, 0, err);
}

Strategy *strategy_ddp(Module *wrapper, Device *device, Sampler *sampler) {
    Strategy *strategy = strategy_single(ddp_module(wrapper), device, sampler);
    strategy->state = memory_zalloc(sizeof(DdpStrategy));
    *state_of(strategy) =
        (DdpStrategy){.watch = {enter_phase, check_group, give_up}, .group = ddp_group(wrapper)};
    strategy->global_mean = ddp_config(wrapper)->global_normalization;
    strategy->module = wrapper;
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sum_start = start_sum;
    strategy->sum_wait = wait_for_sum;
    strategy->sync_buffers = sync_buffers;
    return strategy;
}

int strategy_ddp_check_data(const TrainConfig *config, const DataSource *data, ProcessGroup *group,
                            Error *err) {
    Strategy sums = {
        .sum_start = start_sum, .sum_wait = wait_for_sum, .state = &(DdpStrategy){.group = group}};
    Job ranks = {
        .strategy = &sums, .devices = pg_size(group), .all_count = 1, .rank = pg_rank(group)};
    return checks_same_shapes(&ranks, config, data, err);
}

// ---- the job ------------------------------------------------------------------------------------

static Reducer *reducer_of(const Job *self) {
    return ddp_reducer(self->strategy->module);
}

static ProcessGroup *group_of(const Job *self) {
    return state_of(self->strategy)->group;
}

static int save_state(Job *self, SafeTensors *state, Error *err) {
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

static uint64_t moved_bytes(const Job *self) {
    return pg_moved_bytes(group_of(self));
}

static void set_trace(Job *self, Trace *trace) {
    pg_set_trace(group_of(self), trace, trace_track(trace, "comm", COMM_SPANS));
}

static void close_ddp(Job *self) {
    Strategy *strategy = self->strategy;
    ProcessGroup *group = group_of(self);
    module_close(strategy->module); // and with it the model
    pg_close(group);
    sampler_close(strategy->sampler);
    device_close(strategy->device);
    free(strategy->state);
    free(strategy);
    free(self);
}

Job *job_ddp(Strategy *strategy, const Rendezvous *me) {
    Job *job = job_single(strategy);
    const CommHook *hook = &reducer_of(job)->hook;
    job->name = "ddp";
    job->backend = pg_backend(group_of(job));
    job->devices = pg_size(group_of(job));
    job->rank = pg_rank(group_of(job));
    job->fake_hosts = me->fake_hosts;
    job->sharding = hook->sharding;
    job->watch = &state_of(strategy)->watch;
    job->unrecordable = unrecordable;
    job->moved_bytes = moved_bytes;
    job->set_trace = set_trace;
    job->close = close_ddp;
    if (!hook->save) return job;
    job->save_state = save_state; // the hook's memory
    job->load_state = load_state;
    return job;
}
