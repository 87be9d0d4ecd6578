/* strategy_ddp.c: DistributedDataParallel for the trainer: this rank's share of the data, sums over
 * the ranks, and what the launcher sees of it.
 */
#include "ddp/strategy_ddp.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/nn/tape.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"

enum { COMM_SPANS = 1 << 16 };

typedef struct DdpStrategy {
    ProcessGroup *group;
    Heartbeat *heartbeat; // NULL without a launcher
    Work *sum;            // between reduce_start and reduce_wait
    bool blocked;
    uint64_t bucket_ns; // that pg_totals had at the end of the last step
} DdpStrategy;

static DdpStrategy *state_of(const Strategy *self) {
    return self->state;
}

// The ranks' means are averaged, so a rank with fewer rows would give each of them more weight.
// (The interleaved layout cannot have this: it repeats samples until all ranks have the same
// number.)
static int check_equal_shares(const Sampler *sampler, Error *err) {
    size_t ranks = (size_t)sampler->world;
    for (size_t i = 0; i < sampler->batch_count; i++)
        if (sampler->global[i] % ranks != 0)
            return error_set(
                err, STATUS_USAGE,
                "%s of %zu rows does not divide among %zu ranks: use --normalize global",
                i > 0 ? "the last batch" : "a batch", sampler->global[i], ranks);
    return 0;
}

static Sampler *share(Strategy *self, size_t samples, size_t global_batch, bool shuffle,
                      uint64_t seed, Error *err) {
    if (!state_of(self)->blocked)
        return distributed_sampler(samples, global_batch, self->devices, self->rank, shuffle, false,
                                   seed, err);
    Sampler *sampler = sampler_blocked(samples, global_batch, self->devices, self->rank, shuffle,
                                       false, seed, err);
    if (!sampler || ddp_config(self->module)->global_normalization) return sampler;
    if (check_equal_shares(sampler, err) == 0) return sampler;
    sampler_close(sampler);
    return NULL;
}

static double rows_of_mean(const Strategy *self, size_t rows, size_t global_rows) {
    return (double)(ddp_config(self->module)->global_normalization ? global_rows : rows);
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    ProcessGroup *group = state_of(self)->group;
    int status = ddp_finish_backward(self->module, tape->profile, err);
    uint64_t before = state_of(self)->bucket_ns, now = pg_totals(group).bucket_ns;
    profile_communication(tape->profile, now - before);
    state_of(self)->bucket_ns = now;
    return status;
}

static int sum_over_ranks(Strategy *self, double *values, size_t count, Error *err) {
    return pg_run(state_of(self)->group, pg_all_reduce(values, count, PG_F64, PG_SUM), err);
}

static int start_sum(Strategy *self, double *values, size_t count, Error *err) {
    DdpStrategy *state = state_of(self);
    CHECK(!state->sum, "a sum is started before the last one was waited for");
    state->sum = pg_start(state->group, pg_all_reduce(values, count, PG_F64, PG_SUM), err);
    return state->sum ? 0 : -1;
}

static int wait_for_sum(Strategy *self, Error *err) {
    Work *sum = state_of(self)->sum;
    state_of(self)->sum = NULL;
    return work_wait(sum, NULL, NULL, err);
}

static int barrier(Strategy *self, Error *err) {
    return pg_run(state_of(self)->group, pg_barrier(), err);
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

static uint64_t moved_bytes(const Strategy *self) {
    return pg_moved_bytes(state_of(self)->group);
}

static void enter(Strategy *self, const char *phase, uint64_t step) {
    heartbeat_step(state_of(self)->heartbeat, step);
    heartbeat_phase(state_of(self)->heartbeat, phase);
}

// The group is broken already if this error came from it: then another rank's is the cause.
static void give_up(Strategy *self, const Error *cause) {
    DdpStrategy *state = state_of(self);
    if (pg_abort(state->group, cause)) heartbeat_culprit(state->heartbeat);
}

static void set_trace(Strategy *self, Trace *trace) {
    pg_set_trace(state_of(self)->group, trace, trace_track(trace, "comm", COMM_SPANS));
}

static void close_ddp(Strategy *self) {
    DdpStrategy *state = self->state;
    module_close(self->module); // and with it the model
    pg_close(state->group);
    device_close(self->device);
    heartbeat_close(state->heartbeat);
    free(state);
    free(self);
}

Strategy *strategy_ddp(Module *model, Module *wrapper, ProcessGroup *group, Device *device,
                       const char *sampler) {
    DdpStrategy *state = memory_zalloc(sizeof *state);
    *state = (DdpStrategy){.group = group, .blocked = strcmp(sampler, "blocked") == 0};
    Strategy *strategy = memory_zalloc(sizeof *strategy);
    bool carries = reducer_hook(ddp_reducer(wrapper))->save;
    *strategy = (Strategy){.name = "ddp",
                           .backend = pg_backend(group),
                           .devices = pg_size(group),
                           .rank = pg_rank(group),
                           .device = device,
                           .global_mean = ddp_config(wrapper)->global_normalization,
                           .model = model,
                           .module = wrapper,
                           .evaluation_module = model,
                           .sampler = share,
                           .loss_rows = rows_of_mean,
                           .finish_backward = finish_backward,
                           .reduce = sum_over_ranks,
                           .reduce_start = start_sum,
                           .reduce_wait = wait_for_sum,
                           .barrier = barrier,
                           .sync_buffers = sync_buffers,
                           .save_state = carries ? save_state : NULL,
                           .load_state = carries ? load_state : NULL,
                           .moved_bytes = moved_bytes,
                           .enter = enter,
                           .give_up = give_up,
                           .set_trace = set_trace,
                           .close = close_ddp,
                           .state = state};
    strategy->all = &strategy->device;
    strategy->all_count = 1;
    return strategy;
}

void strategy_ddp_set_heartbeat(Strategy *strategy, Heartbeat *heartbeat) {
    state_of(strategy)->heartbeat = heartbeat;
}
