/* strategy.h: the one seam between the trainer and the ways to spread it over devices.
 *
 * The trainer knows nothing of parallelism. It runs `module` forward and backward on the batches of
 * `sampler`, and asks the strategy for the rest. Single, DataParallel and DistributedDataParallel
 * are three tables of this shape:
 *
 *                    single            DataParallel                 DistributedDataParallel
 *   module           the model         a wrapper: replicate,        a wrapper: buffer broadcast,
 *                                      scatter, apply, gather       then the model; hooks reduce
 *   sampler          whole             whole                        interleaved or blocked share
 *   finish_backward  nothing           nothing: backward did it     waits for the buckets
 *   sums             are there         are there                    all-reduce over the ranks
 *
 * No function is NULL. One that has nothing to do in a strategy does nothing.
 */
#ifndef COMMON_TRAIN_STRATEGY_H
#define COMMON_TRAIN_STRATEGY_H

#include "common/base/log.h"
#include "common/base/trace.h"
#include "common/data/sampler.h"
#include "common/nn/optimizer.h"
#include "common/train/job_watch.h"
#include "common/train/safetensors.h"

typedef struct Strategy Strategy;
struct Strategy {
    const char *name;    // "single", "dp", "ddp"
    const char *backend; // "none", "threads", "shm": for the records
    int devices;         // in all processes together
    int rank;            // of this process
    bool fake_hosts;     // ranks may share a GPU (ddprun --fake-hosts): times mean nothing
    Device *device;      // where the loss and the optimizer live
    Device **all;        // [all_count] this process's devices, `device` first
    int all_count;
    Sampler *sampler; // this process's batches
    bool global_mean; // the loss is divided by all processes' rows, not by this one's, and
                      // gradients are added up, not averaged (--normalize global)
    // Why its gradients are not DataParallel's bit for bit, and what would help; NULL: nothing that
    // it knows of.
    const char *other_bits;
    Module *model;  // the bare model: parameters, names, checkpoints
    Module *module; // what training steps run
    Module *evaluation_module;
    const JobWatch *watch;       // never NULL
    OptimizerSharding *sharding; // how the step is divided over the processes; NULL: it is not

    // Whether the forwards that follow belong to a step that goes on after their backward: then
    // gradients add up here, and are not reduced (PyTorch's no_sync).
    void (*hold_gradients)(Strategy *self, bool hold);
    // After backward: the gradients of the global batch are in the model when it returns.
    int (*finish_backward)(Strategy *self, Tape *tape, Error *err);
    // Adds `values` up over all processes, in the background: until sum_wait they must stay where
    // they are. The sum is there at the latest when the next step's gradients are reduced, so that
    // waiting for it after that costs nothing. Returns what sum_wait takes, or NULL with err
    // filled.
    void *(*sum_start)(Strategy *self, double *values, size_t count, Error *err);
    int (*sum_wait)(Strategy *self, void *sum, Error *err);
    // Makes every process's buffers the main one's, before evaluation.
    int (*sync_buffers)(Strategy *self, Error *err);
    // What the strategy itself carries from step to step, for checkpoints; and, where the step is
    // divided, the optimizer's state (checkpoint_save). save_state is collective; the main process
    // gets it all (safetensors_free), the others get nothing.
    int (*save_state)(Strategy *self, SafeTensors *state, Error *err);
    // Takes over what was saved, maybe on other devices, or by a run that had none (then state is
    // empty). What cannot go on bit for bit is said on the log, which names the checkpoint: `path`.
    int (*load_state)(Strategy *self, const char *path, const SafeTensors *state, Log *log,
                      Error *err);
    // What keeps its steps, as they are now, from being recorded once and replayed; NULL: nothing.
    const char *(*unrecordable)(const Strategy *self);
    // Bytes this process moved between devices since it was opened.
    uint64_t (*moved_bytes)(const Strategy *self);
    // Adds the strategy's own tracks (replicas, communicator) to a trace.
    void (*set_trace)(Strategy *self, Trace *trace);
    // Closes all that the strategy was made from: wrapper, model, sampler, devices.
    void (*close)(Strategy *self);
    void *state; // the strategy's own
};

static inline bool strategy_is_main(const Strategy *strategy) {
    return strategy->rank == 0;
}
static inline int strategy_processes(const Strategy *strategy) {
    return strategy->devices / strategy->all_count;
}

// Adds values up over all processes, now.
int strategy_sum(Strategy *strategy, double *values, size_t count, Error *err);
// Returns when every process has called it.
int strategy_barrier(Strategy *strategy, Error *err);

// Whether its steps can be recorded and replayed: -1 with err filled if something keeps them from
// it.
int strategy_check_recordable(const Strategy *strategy, Error *err);

// One device, no wrapper. The strategy owns all three from now on.
Strategy *strategy_single(Module *model, Device *device, Sampler *sampler);

#endif
