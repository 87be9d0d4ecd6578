/* job.c: the Job of one device, whose functions are no-ops, and the functions that all jobs share.
 */
#include "common/train/job.h"

#include "common/base/memory.h"

// ---- the watch without launcher -----------------------------------------------------------------

static void no_phase(const JobWatch *self, const char *phase, uint64_t step) {
    (void)self, (void)phase, (void)step;
}

static int no_failure(const JobWatch *self, Error *err) {
    (void)self, (void)err;
    return 0;
}

static void no_report(const JobWatch *self, const Error *cause) {
    (void)self, (void)cause;
}

const JobWatch job_watch_none = {.enter = no_phase, .check = no_failure, .give_up = no_report};

// ---- the job ------------------------------------------------------------------------------------

int job_check_recordable(const Job *job, Error *err) {
    const char *what = job->unrecordable(job);
    if (!what) return 0;
    return error_set(err, STATUS_USAGE,
                     "--cuda-graph: %s decides on the host in every step, and a replayed step "
                     "would repeat the captured decision",
                     what);
}

static int nothing_to_save(Job *self, const Optimizer *optimizer, SafeTensors *state, Error *err) {
    (void)self, (void)optimizer, (void)state, (void)err;
    return 0;
}

static int nothing_to_gather(Job *self, SafeTensors *gradients, Error *err) {
    (void)self, (void)gradients, (void)err;
    return 0;
}

static int nothing_to_load(Job *self, const char *path, const SafeTensors *state, RunLog *log,
                           Error *err) {
    (void)self, (void)err;
    if (state->count > 0)
        log_say(
            log,
            "%s also holds %s, state that this run does not use: it continues, but not bit for bit",
            path, state->entries[0].name);
    return 0;
}

static const char *nothing_to_decide(const Job *self) {
    (void)self;
    return NULL;
}

static uint64_t nothing_moved(const Job *self) {
    (void)self;
    return 0;
}

static void no_tracks(Job *self, Trace *trace) {
    (void)self, (void)trace;
}

static void close_single(Job *self) {
    module_close(self->strategy->model);
    sampler_close(self->strategy->sampler);
    device_close(self->strategy->device);
    free(self->strategy);
    free(self);
}

Job *job_single(Strategy *strategy) {
    Job *job = memory_zalloc(sizeof *job);
    *job = (Job){.strategy = strategy,
                 .name = "single",
                 .backend = "none",
                 .devices = 1,
                 .all = &strategy->device,
                 .all_count = 1,
                 .watch = &job_watch_none,
                 .save_state = nothing_to_save,
                 .load_state = nothing_to_load,
                 .gather_gradients = nothing_to_gather,
                 .unrecordable = nothing_to_decide,
                 .moved_bytes = nothing_moved,
                 .set_trace = no_tracks,
                 .close = close_single};
    return job;
}
