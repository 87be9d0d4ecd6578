/* job.h: the part of a run outside its steps: its devices and processes, the launcher's watch,
 * traces, bytes moved, and the state that a checkpoint holds besides weights and optimizer.
 *
 * A step accesses the Strategy only; a program creates both.
 *
 *                    single       DataParallel      DistributedDataParallel
 *   processes        1            1                 one for each device
 *   devices here     1            all               1
 *   watch            none         none              the launcher's heartbeat, the group's errors
 *   own state        none         none              the communication hook's (PowerSGD, ...)
 *
 * No function is NULL.
 */
#ifndef COMMON_TRAIN_JOB_H
#define COMMON_TRAIN_JOB_H

#include "common/base/log.h"
#include "common/base/trace.h"
#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"
#include "common/train/strategy.h"

// The reports to the launcher and to the job's other processes: the phase that begins, a failure.
typedef struct JobWatch JobWatch;
struct JobWatch {
    // Reports the phase that begins ("train", "evaluate", "checkpoint", "shutdown") at this step of
    // the run.
    void (*enter)(const JobWatch *self, const char *phase, uint64_t step);
    // Returns 0, or -1 with err filled once a process of the job has failed; results of collectives
    // are invalid then. Called where collectives are not waited for one by one (asynchronous
    // devices): before a step is replayed, after a loss is read back, before gradients are
    // written.
    int (*check)(const JobWatch *self, Error *err);
    // Reports that the run has failed in this process, so that the other processes fail at once
    // with the same message.
    void (*give_up)(const JobWatch *self, const Error *cause);
};

extern const JobWatch job_watch_none; // without launcher: no-ops

typedef struct Job Job;
struct Job {
    Strategy *strategy;
    const char *name;    // "single", "dp", "ddp"
    const char *backend; // "none", "threads", "shm": for the records
    int devices;         // of all processes together
    int rank;            // of this process
    bool fake_hosts;     // ranks may share a GPU (ddprun --fake-hosts): times are meaningless
    Device **all;        // [all_count] this process's devices, strategy->device first
    int all_count;
    const JobWatch *watch;       // never NULL
    OptimizerSharding *sharding; // shards the optimizer over the processes; NULL: not sharded

    // The wrapper's state between steps, and that of a sharded model and optimizer (checkpoint.h).
    // save_state is collective: the main process receives all processes' state (safetensors_free),
    // the others an empty one. load_state restores it, possibly on other devices; `state` is empty
    // if the saving run had none. It logs state that cannot continue bit for bit. path names the
    // checkpoint in messages. Both return 0, or -1 with err filled.
    int (*save_state)(Job *self, const Optimizer *optimizer, SafeTensors *state, Error *err);
    int (*load_state)(Job *self, const char *path, const SafeTensors *state, RunLog *log,
                      Error *err);
    // Collects the whole gradients of a sharded model on the main process, for
    // safetensors_save_whole; otherwise none. Collective.
    int (*gather_gradients)(Job *self, SafeTensors *gradients, Error *err);
    // Names the component that prevents the capture of a step in a graph; NULL: none does.
    const char *(*unrecordable)(const Job *self);
    // Bytes this process moved between devices since the job was opened.
    uint64_t (*moved_bytes)(const Job *self);
    // Adds the job's own tracks (replicas, communicator) to a trace.
    void (*set_trace)(Job *self, Trace *trace);
    // Closes the job, its strategy, wrapper, model, sampler and devices.
    void (*close)(Job *self);
};

// Returns 0, or -1 with err naming the component, if steps cannot be captured (unrecordable).
int job_check_recordable(const Job *job, Error *err);

// Returns the Job of one device. Owns the strategy, its model, sampler and device.
Job *job_single(Strategy *strategy);

#endif
