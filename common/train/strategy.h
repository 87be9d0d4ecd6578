/* strategy.h: the interface between a step and parallelism: one device, DataParallel or
 * DistributedDataParallel.
 *
 * The trainer runs `module` forward and backward on the batches of `sampler`, and calls five
 * functions:
 *
 *                    single            DataParallel                 DistributedDataParallel
 *   module           the model         a wrapper: scatter,          a wrapper: buffer broadcast,
 *                                      replicate, apply, gather     then the model; hooks reduce
 *   sampler          whole             whole                        interleaved or blocked share
 *   hold_gradients   no-op             no-op                        no_sync
 *   finish_backward  no-op             no-op: backward reduced      waits for the buckets
 *   sum_start, _wait identity          identity                     all-reduce over the ranks
 *   sync_buffers     no-op             no-op                        broadcast from rank 0
 *
 * No function is NULL. Files, traces and the launcher's watch are in the run's Job (job.h).
 */
#ifndef COMMON_TRAIN_STRATEGY_H
#define COMMON_TRAIN_STRATEGY_H

#include "common/data/sampler.h"
#include "common/nn/module.h"

typedef struct Strategy Strategy;
struct Strategy {
    Device *device;   // of the loss, the gradients and the optimizer
    Sampler *sampler; // this process's batches
    bool global_mean; // --normalize global: the loss is divided by all processes' rows, and
                      // gradients are summed. false: by this process's rows, and averaged
    Module *model;    // the bare model: parameters, names, checkpoints
    Module *module;   // of training steps: the model, or its wrapper
    Module *evaluation_module;
    // A forward is collective: all processes run the same number (ddp/fsdp gathers weights in it).
    bool collective_forward;
    void *state; // the strategy's own

    // hold true: the following backwards accumulate gradients without reducing them, until hold
    // false (PyTorch's no_sync).
    void (*hold_gradients)(Strategy *self, bool hold);
    // Waits for the reduction that backward started: on return the model has the gradients of the
    // global batch. 0, or -1 with err filled.
    int (*finish_backward)(Strategy *self, Tape *tape, Error *err);
    // Starts the sum of values[count] over all processes, in place; values are in use until
    // sum_wait returns. It completes before the next step's gradients are reduced, so waiting for
    // it after that step is free. Returns the handle for sum_wait, or NULL with err filled.
    void *(*sum_start)(Strategy *self, double *values, size_t count, Error *err);
    int (*sum_wait)(Strategy *self, void *sum, Error *err);
    // Copies the main process's buffers to every process, before evaluation.
    int (*sync_buffers)(Strategy *self, Error *err);
};

// The number of processes that share the batches; whether this process is the first.
static inline int strategy_processes(const Strategy *strategy) {
    return strategy->sampler->world;
}
static inline bool strategy_is_main(const Strategy *strategy) {
    return strategy->sampler->rank == 0;
}

// Sums values[count] over all processes in place; blocks. 0, or -1 with err filled.
int strategy_sum(Strategy *strategy, double *values, size_t count, Error *err);
// Returns after every process has called it: 0, or -1 with err filled.
int strategy_barrier(Strategy *strategy, Error *err);

// Returns the Strategy of one device. Its Job (job_single) owns model, device and sampler.
Strategy *strategy_single(Module *model, Device *device, Sampler *sampler);

#endif
