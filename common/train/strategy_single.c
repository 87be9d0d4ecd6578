/* strategy_single.c: one device, so that every part of the seam is as simple as it can be. What all
 * strategies share is here, too.
 */
#include "common/base/memory.h"
#include "common/train/strategy.h"

int strategy_sum(Strategy *strategy, double *values, size_t count, Error *err) {
    void *sum = strategy->sum_start(strategy, values, count, err);
    return sum ? strategy->sum_wait(strategy, sum, err) : -1;
}

int strategy_barrier(Strategy *strategy, Error *err) {
    double nothing = 0; // its sum cannot be there before everybody has come
    return strategy_sum(strategy, &nothing, 1, err);
}

int strategy_check_recordable(const Strategy *strategy, Error *err) {
    const char *what = strategy->unrecordable(strategy);
    if (!what) return 0;
    return error_set(err, STATUS_USAGE,
                     "--cuda-graph: %s has something to decide in every step, and a replayed step "
                     "would repeat what it decided once",
                     what);
}

static void nothing_to_hold(Strategy *self, bool hold) {
    (void)self, (void)hold;
}

static int nothing_to_finish(Strategy *self, Tape *tape, Error *err) {
    (void)self, (void)tape, (void)err;
    return 0;
}

static void *sum_of_one(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)count, (void)err;
    return values; // is its own sum
}

static int nothing_to_wait_for(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum, (void)err;
    return 0;
}

static int nothing_to_sync(Strategy *self, Error *err) {
    (void)self, (void)err;
    return 0;
}

static int nothing_to_save(Strategy *self, SafeTensors *state, Error *err) {
    (void)self, (void)state, (void)err;
    return 0;
}

static int nothing_to_load(Strategy *self, const char *path, const SafeTensors *state, Log *log,
                           Error *err) {
    (void)self, (void)err;
    if (state->count > 0)
        log_say(log,
                "%s also holds %s and the like, which this run has no use for: it continues, but "
                "not bit for bit",
                path, state->entries[0].name);
    return 0;
}

static const char *nothing_to_decide(const Strategy *self) {
    (void)self;
    return NULL;
}

static uint64_t nothing_moved(const Strategy *self) {
    (void)self;
    return 0;
}

static void no_tracks(Strategy *self, Trace *trace) {
    (void)self, (void)trace;
}

static void close_single(Strategy *self) {
    module_close(self->model);
    sampler_close(self->sampler);
    device_close(self->device);
    free(self);
}

Strategy *strategy_single(Module *model, Device *device, Sampler *sampler) {
    Strategy *strategy = memory_zalloc(sizeof *strategy);
    *strategy = (Strategy){.name = "single",
                           .backend = "none",
                           .devices = 1,
                           .device = device,
                           .sampler = sampler,
                           .model = model,
                           .module = model,
                           .evaluation_module = model,
                           .watch = &job_watch_nobody,
                           .hold_gradients = nothing_to_hold,
                           .finish_backward = nothing_to_finish,
                           .sum_start = sum_of_one,
                           .sum_wait = nothing_to_wait_for,
                           .sync_buffers = nothing_to_sync,
                           .save_state = nothing_to_save,
                           .load_state = nothing_to_load,
                           .unrecordable = nothing_to_decide,
                           .moved_bytes = nothing_moved,
                           .set_trace = no_tracks,
                           .close = close_single};
    strategy->all = &strategy->device;
    strategy->all_count = 1;
    return strategy;
}
