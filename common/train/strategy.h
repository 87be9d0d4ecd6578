/* strategy.h: the one seam between the trainer and the ways to spread it over devices.
 *
 * The trainer knows nothing of parallelism. It forwards and backwards `module`, and asks the
 * strategy for the rest. Single, DataParallel and DistributedDataParallel are three tables of this
 * shape:
 *
 *                  single            DataParallel                 DistributedDataParallel
 *   module         the model         a wrapper: replicate,        a wrapper: buffer broadcast,
 *                                    scatter, apply, gather       then the model; hooks reduce
 *   sampler        whole             whole                        interleaved or blocked share
 *   reduce         nothing           nothing                      sum over the ranks
 */
#ifndef COMMON_TRAIN_STRATEGY_H
#define COMMON_TRAIN_STRATEGY_H

#include "common/base/log.h"
#include "common/base/trace.h"
#include "common/data/sampler.h"
#include "common/nn/module.h"
#include "common/train/safetensors.h"

typedef struct Strategy Strategy;
struct Strategy {
    const char *name;    // "single", "dp", "ddp"
    const char *backend; // "none", "threads", "shm": for the records
    int devices;         // in all ranks together
    int rank;            // of this process
    bool fake_hosts;     // ranks may share a GPU (ddprun --fake-hosts): times mean nothing
    Device *device;      // where the loss and the optimizer live
    Device **all;        // this process's devices, device first
    int all_count;
    bool global_mean; // losses are means over all ranks' rows, see loss_rows (--normalize global)
    Module *model;    // the bare model: parameters, names, checkpoints
    Module *module;   // what training steps run; evaluation too, unless evaluation_module is set
    Module *evaluation_module;

    Sampler *(*sampler)(Strategy *self, size_t samples, size_t global_batch, bool shuffle,
                        uint64_t seed, Error *err);
    // The divisor of a mean loss, for `rows` of this rank's rows out of `global_rows`.
    double (*loss_rows)(const Strategy *self, size_t rows, size_t global_rows);
    // Called after backward: reduced gradients are in the model when it returns.
    int (*finish_backward)(Strategy *self, Tape *tape, Error *err);
    // Sums values over all ranks (metrics).
    int (*reduce)(Strategy *self, double *values, size_t count, Error *err);
    // The same in the background: between the two, the values must stay where they are. One at a
    // time. It is done at the latest with the next step's gradients: waiting for it later costs
    // nothing.
    int (*reduce_start)(Strategy *self, double *values, size_t count, Error *err);
    int (*reduce_wait)(Strategy *self, Error *err);
    int (*barrier)(Strategy *self, Error *err);
    // Makes every rank's buffers the main rank's, before evaluation.
    int (*sync_buffers)(Strategy *self, Error *err);
    // What the strategy carries from step to step of its own, for checkpoints. NULL, both: nothing.
    // save_state is collective; the main rank gets it all (safetensors_free), the others nothing.
    int (*save_state)(Strategy *self, SafeTensors *state, Error *err);
    // From what was saved, maybe on other devices or by a run that had none (then it is empty).
    // What cannot go on bit for bit is said on the log, which names the checkpoint: `path`.
    int (*load_state)(Strategy *self, const char *path, const SafeTensors *state, Log *log,
                      Error *err);
    // Bytes this process moved between devices since it was opened.
    uint64_t (*moved_bytes)(const Strategy *self);
    // What this process is about to do ("train", "evaluate", "checkpoint", "shutdown"), and at
    // which step of the run: for whoever watches over it. NULL: nobody does.
    void (*enter)(Strategy *self, const char *phase, uint64_t step);
    // The run has failed here: lets the other ranks fail with the same words at once. NULL: there
    // are none.
    void (*give_up)(Strategy *self, const Error *cause);
    // Adds the strategy's own tracks (replicas, communicator) to a trace.
    void (*set_trace)(Strategy *self, Trace *trace);
    void (*close)(Strategy *self); // closes the wrapper, the model and the devices
    void *state;
};

static inline bool strategy_is_main(const Strategy *strategy) {
    return strategy->rank == 0;
}

// One device, no wrapper. The strategy owns both from now on.
Strategy *strategy_single(Module *model, Device *device);

#endif
