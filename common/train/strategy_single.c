/* strategy_single.c: one device. Every part of the seam is its simplest self. */
#include "common/base/memory.h"
#include "common/train/strategy.h"

static Sampler *whole(Strategy *self, size_t samples, size_t global_batch, bool shuffle,
                      uint64_t seed, Error *err) {
    (void)self;
    return sampler_whole(samples, global_batch, shuffle, false, seed, err);
}

static double all_rows(const Strategy *self, size_t rows, size_t global_rows) {
    (void)self, (void)rows;
    return (double)global_rows;
}

static int nothing_to_finish(Strategy *self, Tape *tape, Error *err) {
    (void)self, (void)tape, (void)err;
    return 0;
}

static int nothing_to_reduce(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)values, (void)count, (void)err;
    return 0;
}

static int nobody_to_wait_for(Strategy *self, Error *err) {
    (void)self, (void)err;
    return 0;
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
    device_close(self->device);
    free(self);
}

Strategy *strategy_single(Module *model, Device *device) {
    Strategy *strategy = memory_zalloc(sizeof *strategy);
    *strategy = (Strategy){.name = "single",
                           .backend = "none",
                           .devices = 1,
                           .device = device,
                           .model = model,
                           .module = model,
                           .sampler = whole,
                           .loss_rows = all_rows,
                           .finish_backward = nothing_to_finish,
                           .reduce = nothing_to_reduce,
                           .reduce_start = nothing_to_reduce,
                           .reduce_wait = nobody_to_wait_for,
                           .barrier = nobody_to_wait_for,
                           .sync_buffers = nobody_to_wait_for,
                           .moved_bytes = nothing_moved,
                           .set_trace = no_tracks,
                           .close = close_single};
    strategy->all = &strategy->device;
    strategy->all_count = 1;
    return strategy;
}
