/* strategy_single.c: the Strategy of one device, whose functions are no-ops, and the functions that
 * all strategies share.
 */
#include "common/base/memory.h"
#include "common/train/strategy.h"

int strategy_sum(Strategy *strategy, double *values, size_t count, Error *err) {
    void *sum = strategy->sum_start(strategy, values, count, err);
    return sum ? strategy->sum_wait(strategy, sum, err) : -1;
}

int strategy_barrier(Strategy *strategy, Error *err) {
    double nothing = 0; // the sum completes after every process has started it
    return strategy_sum(strategy, &nothing, 1, err);
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
    return values; // the sum over one process is the identity
}

static int nothing_to_wait_for(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum, (void)err;
    return 0;
}

static int nothing_to_sync(Strategy *self, Error *err) {
    (void)self, (void)err;
    return 0;
}

Strategy *strategy_single(Module *model, Device *device, Sampler *sampler) {
    Strategy *strategy = memory_zalloc(sizeof *strategy);
    *strategy = (Strategy){.device = device,
                           .sampler = sampler,
                           .model = model,
                           .module = model,
                           .evaluation_module = model,
                           .hold_gradients = nothing_to_hold,
                           .finish_backward = nothing_to_finish,
                           .sum_start = sum_of_one,
                           .sum_wait = nothing_to_wait_for,
                           .sync_buffers = nothing_to_sync};
    return strategy;
}
