/* reducer.h: makes the ranks' gradients equal while backward is still running (PyTorch's Reducer).
 *
 * The parameters' gradients live in buckets, and the buckets lie one after another in one slab of
 * memory that all ranks share: a gradient is computed where it will be reduced, and an all-reduce
 * copies nothing in or out. When the last gradient of a bucket is ready, the bucket's all-reduce
 * starts on the communication thread. Buckets are started in index order on every rank, so a bucket
 * that is ready early waits for the ones before it.
 *
 * The first backward uses one bucket per device, because registration order may be far from the
 * order in which gradients become ready. That order is recorded, rank 0's is broadcast, and before
 * the second forward that is to be reduced (PyTorch: also before one under no_sync) the buckets are
 * rebuilt by it: a first one of at most 1 MiB (if the cap is the default) so that communication
 * starts early, then ones of bucket_cap bytes.
 *
 * Three things can be hung on it: what is done with a full bucket (CommHook; without one, an
 * all-reduce), when a gradient counts as ready (ReadyPolicy; without one, when the tape says so),
 * and what happens to a bucket before and after its communication (BucketWatch).
 */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "common/base/profile.h"
#include "common/nn/module.h"
#include "ddp/buckets.h"
#include "ddp/group/process_group.h"

typedef struct ReducerConfig {
    // MiB; 0: every gradient alone; negative: PyTorch's default, 25 with a first of 1.
    double bucket_cap_mb;
    bool overlap; // false: start nothing before backward has ended
    ReduceOp op;  // PG_AVG (PyTorch), or PG_SUM when the loss is divided by the global batch
} ReducerConfig;

typedef struct Reducer Reducer;

// Takes over the gradients of these parameters, one at least, which all require one and have no
// memory for it: that is the slab from now on. Takes the list. Collective. NULL with err filled.
Reducer *reducer_create(NamedTensors parameters, ProcessGroup *group, const ReducerConfig *config,
                        Error *err);
void reducer_close(Reducer *reducer); // the parameters have no gradient memory afterwards

// Before a forward: if its backward is to be reduced, rebuilds the buckets if it is time (a
// collective) and expects every parameter anew; otherwise expects none. Returns -1 with PyTorch's
// error naming the parameters that got no gradient if the backward before did not finish.
int reducer_prepare(Reducer *reducer, bool reduce, Error *err);

// The forward has ended. Only reducer_times needs to know.
void reducer_forward_done(Reducer *reducer);

// After backward: waits for all buckets. On return every parameter's gradient is the reduced one,
// the same bits on every rank. profile (may be NULL) is charged PHASE_EXPOSED.
int reducer_finish(Reducer *reducer, Profile *profile, Error *err);

// The last iteration in ns, by the five events of PyTorch's Logger (c10d/logger.cpp): forward
// begins, forward ends, the first bucket is launched, the last gradient is ready, all buckets are
// done. exposed: how long reducer_finish waited.
typedef struct ReducerTimes {
    uint64_t forward_compute, backward_compute, backward_comm, overlap, exposed;
} ReducerTimes;
ReducerTimes reducer_times(const Reducer *reducer);

// The parameters, in registration order, and the current buckets of them.
const NamedTensors *reducer_parameters(const Reducer *reducer);
const BucketPlan *reducer_plan(const Reducer *reducer);
ProcessGroup *reducer_group(const Reducer *reducer);
bool reducer_rebuilt(const Reducer *reducer);
// The parameter's part of its bucket; its gradient lies there unless a feature keeps it elsewhere.
float *reducer_slice(const Reducer *reducer, size_t parameter);
// [*count] indices of parameters, as they became ready in the last backward.
const int64_t *reducer_ready_order(const Reducer *reducer, size_t *count);
bool reducer_expecting(const Reducer *reducer); // between reducer_prepare and reducer_finish

// ---- what is done with a full bucket ----------------------------------------------------------

typedef struct GradBucket {
    size_t index;
    bool is_last;
    Device *device;
    float *buffer; // [count], shared memory: gradients, with zeros between them
    size_t count;
    Tensor **parameters; // [parameter_count] whose gradients lie in the buffer, in its order
    size_t parameter_count;
    ReduceOp op;      // how the ranks' gradients are to be combined: PG_AVG or PG_SUM
    Work *work;       // the hook's, from start to finish
    uint64_t done_ns; // when communication ended, if finish says so
} GradBucket;

// For hooks, the all-reduce of the whole buffer, between start and finish: bucket->work.
int grad_bucket_start(GradBucket *bucket, ProcessGroup *group, PgType type, ReduceOp op,
                      Error *err);
int grad_bucket_finish(GradBucket *bucket, Error *err);

typedef struct HookState HookState; // ddp/features/hook_state.h

// start is called inside backward as soon as the bucket is full, finish after backward; both in
// index order, the same on every rank, and finish for every bucket whose start succeeded. What
// finish leaves in the buffer is the gradient. (PyTorch's hook returns a future: what is chained to
// it stands in finish.)
typedef struct CommHook {
    const char *name;
    void *state;
    int (*start)(void *state, GradBucket *bucket, Error *err);
    int (*finish)(void *state, GradBucket *bucket, Error *err);
    void (*close)(void *state);         // may be NULL
    HookState (*describe)(void *state); // what it carries from step to step; NULL: nothing
} CommHook;

// Takes the hook (it is closed with the reducer, or now if it is refused), before the first
// backward. -1 with PyTorch's error if it is none or there is one already.
int reducer_set_hook(Reducer *reducer, CommHook hook, Error *err);
const CommHook *reducer_hook(const Reducer *reducer); // its name is NULL if none was set
void reducer_remove_hook(Reducer *reducer);           // closes it: the plain all-reduce again

// ---- when a gradient counts as ready ----------------------------------------------------------

// What happens at which time: reducer_finish in reducer.c. All may be NULL but state.
typedef struct ReadyPolicy {
    void *state;
    // Buckets of bucket_cap bytes from the start, in registration order, and never rebuilt.
    bool permanent_buckets;
    void (*prepare)(void *state); // a forward begins whose backward will be reduced
    // The tape has completed a parameter's gradient, whether backward will be reduced or not.
    // Returns whether it is ready now.
    bool (*gradient)(void *state, size_t parameter);
    void (*shadow)(void *state);               // there is no backward on this rank: mark all
    void (*complete)(void *state);             // backward is over: mark what is still missing
    void (*exchange)(void *state, Error *err); // all buckets are started
    void (*settle)(void *state, Error *err);   // all buckets are reduced; also after an error
    void (*close)(void *state);
} ReadyPolicy;

void reducer_set_policy(Reducer *reducer, ReadyPolicy policy); // before the first forward
const ReadyPolicy *reducer_policy(const Reducer *reducer);
// This parameter's slice of its bucket holds what is to be reduced.
void reducer_mark_ready(Reducer *reducer, size_t parameter);
// The first error, for a policy that finds one: no iteration works after it.
Error *reducer_error(Reducer *reducer);

// ---- before and after the communication of a bucket -------------------------------------------

// full: all of the bucket's gradients are ready, the hook is about to start. reduced: the hook has
// finished. In index order, whichever hook it is. All may be NULL but state.
typedef struct BucketWatch {
    void *state;
    void (*full)(void *state, const GradBucket *bucket);
    void (*reduced)(void *state, const GradBucket *bucket);
    void (*close)(void *state); // before the reducer lets go of the gradients
} BucketWatch;

void reducer_set_watch(Reducer *reducer, BucketWatch watch);

#endif
