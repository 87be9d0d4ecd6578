/* strategy_ranks.c: the functions of a rank's Strategy and Job that use its ProcessGroup. */
#include "ddp/strategy_ranks.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/train/checks.h"

enum { COMM_SPANS = 1 << 16 };

typedef struct RanksState {
    JobWatch watch; // must be the first field: its functions are given a pointer to it
    ProcessGroup *group;
    uint64_t bucket_ns; // pg_totals' bucket_ns at the end of the last step
} RanksState;

static RanksState *state_of(const Strategy *self) {
    return self->state;
}

ProcessGroup *strategy_ranks_group(const Strategy *strategy) {
    return state_of(strategy)->group;
}

// ---- the watch ----------------------------------------------------------------------------------

// Phases and steps go to the group's observer, and a failure of this rank breaks the group.
static void enter_phase(const JobWatch *self, const char *phase, uint64_t step) {
    pg_enter(((const RanksState *)self)->group, phase, step);
}

static int check_group(const JobWatch *self, Error *err) {
    return pg_check_sound(((const RanksState *)self)->group, err);
}

static void give_up(const JobWatch *self, const Error *cause) {
    (void)pg_abort(((const RanksState *)self)->group, cause);
}

// ---- the strategy -------------------------------------------------------------------------------

void strategy_ranks_profile(const Strategy *strategy, Profile *profile) {
    RanksState *state = state_of(strategy);
    uint64_t before = state->bucket_ns, now = pg_totals(state->group).bucket_ns;
    profile_communication(profile, now - before);
    state->bucket_ns = now;
}

static void *start_sum(Strategy *self, double *values, size_t count, Error *err) {
    return pg_start(state_of(self)->group, pg_all_reduce(values, count, PG_F64, PG_SUM), err);
}

static int wait_for_sum(Strategy *self, void *sum, Error *err) {
    (void)self;
    return pg_work_wait(sum, NULL, NULL, err);
}

Strategy *strategy_ranks(Module *model, Module *wrapper, ProcessGroup *group, Device *device,
                         Sampler *sampler) {
    Strategy *strategy = strategy_single(model, device, sampler);
    strategy->state = memory_zalloc(sizeof(RanksState));
    *state_of(strategy) =
        (RanksState){.watch = {enter_phase, check_group, give_up}, .group = group};
    strategy->module = wrapper;
    strategy->sum_start = start_sum;
    strategy->sum_wait = wait_for_sum;
    return strategy;
}

int strategy_ranks_check_data(const TrainConfig *config, const DataSource *data,
                              ProcessGroup *group, Error *err) {
    Strategy sums = {
        .sum_start = start_sum, .sum_wait = wait_for_sum, .state = &(RanksState){.group = group}};
    Job ranks = {
        .strategy = &sums, .devices = pg_size(group), .all_count = 1, .rank = pg_rank(group)};
    return checks_same_shapes(&ranks, config, data, err);
}

// ---- the job ------------------------------------------------------------------------------------

static uint64_t moved_bytes(const Job *self) {
    return pg_moved_bytes(strategy_ranks_group(self->strategy));
}

static void set_trace(Job *self, Trace *trace) {
    pg_set_trace(strategy_ranks_group(self->strategy), trace,
                 trace_track(trace, "comm", COMM_SPANS));
}

static void close_ranks(Job *self) {
    Strategy *strategy = self->strategy;
    ProcessGroup *group = strategy_ranks_group(strategy);
    module_close(strategy->module); // closes the model, too
    pg_close(group);
    sampler_close(strategy->sampler);
    device_close(strategy->device);
    free(strategy->state);
    free(strategy);
    free(self);
}

Job *job_ranks(Strategy *strategy, const Rendezvous *me) {
    Job *job = job_single(strategy);
    ProcessGroup *group = strategy_ranks_group(strategy);
    job->name = "ddp";
    job->backend = pg_backend(group);
    job->devices = pg_size(group);
    job->rank = pg_rank(group);
    job->fake_hosts = me->fake_hosts;
    job->watch = &state_of(strategy)->watch;
    job->moved_bytes = moved_bytes;
    job->set_trace = set_trace;
    job->close = close_ranks;
    return job;
}
