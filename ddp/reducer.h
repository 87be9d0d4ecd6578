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
 * Three things can be hung on it, and each says below when it is called:
 *
 *   CommHook       what is done with a full bucket; without one, an all-reduce
 *   ReadyPolicy    when a gradient counts as ready; without one, when the tape says so
 *   DdpIteration   what else happens before a forward, around each bucket and after the step
 *
 * Each is a table of functions and a state, taken by value. A function that its comment calls
 * optional may be NULL: then nothing is done at that point. A function that returns an int returns
 * 0, or -1 with err filled; if it leaves err empty, a general error that names it is put there, so
 * that no failure is lost. After the first error no bucket is started any more, those that were
 * started are finished, and reducer_finish and every later reducer_prepare return that error.
 */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include <string.h>

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

// Takes over the gradients of these parameters: from now on their memory is the slab. Each must
// want one, and have no memory for it yet. The list is the reducer's from then on. Collective. NULL
// with err filled.
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

// For hooks: the all-reduce of the whole buffer, which is bucket->work between start and finish.
int grad_bucket_start(GradBucket *bucket, ProcessGroup *group, PgType type, ReduceOp op,
                      Error *err);
int grad_bucket_finish(GradBucket *bucket, Error *err);

typedef struct Log Log;                             // common/base/log.h
typedef struct SafeTensors SafeTensors;             // common/train/safetensors.h
typedef struct OptimizerSharding OptimizerSharding; // common/nn/optimizer.h

// start is called inside backward as soon as the bucket is full, finish after backward; both in
// index order, the same on every rank, and finish for every bucket whose start succeeded. What
// finish leaves in the buffer is the gradient. (PyTorch's hook returns a future: what is chained to
// it stands in finish.)
typedef struct CommHook {
    const char *name;
    void *state;
    OptimizerSharding *sharding; // optional: the hook's own; it divides the optimizer, too
    int (*start)(void *state, GradBucket *bucket, Error *err);
    int (*finish)(void *state, GradBucket *bucket, Error *err);
    void (*close)(void *state); // optional
    // What the hook carries from step to step, for checkpoints. Optional, but both or none. save is
    // collective; rank 0's *content holds all ranks' state (safetensors_free), the others' nothing.
    // load takes this rank's part of it on every rank; `path` names the file in messages, and what
    // cannot go on bit for bit is said on the log.
    int (*save)(void *state, SafeTensors *content, Error *err);
    int (*load)(void *state, const char *path, const SafeTensors *content, Log *log, Error *err);
    bool graph_safe; // see reducer_unrecordable
} CommHook;

// Takes the hook (it is closed with the reducer, or now if it is refused), before the first
// backward. -1 with PyTorch's error if it is none or there is one already.
int reducer_set_hook(Reducer *reducer, CommHook hook, Error *err);
const CommHook *reducer_hook(const Reducer *reducer); // its name is NULL if none was set
void reducer_remove_hook(Reducer *reducer);           // closes it: the plain all-reduce again

// ---- when a gradient counts as ready ----------------------------------------------------------

// The functions are named after what has just happened, and are listed in the order in which it
// happens. All are optional.
typedef struct ReadyPolicy {
    const char *name;
    void *state;
    // Buckets of bucket_cap bytes from the start, in registration order, and never rebuilt.
    bool permanent_buckets;
    void (*forward_begins)(void *state); // one whose backward will be reduced
    // The tape has completed a parameter's gradient, whether backward will be reduced or not.
    // Returns whether the gradient is ready now.
    bool (*gradient_completed)(void *state, size_t parameter);
    void (*backward_left_out)(void *state); // this rank has none: mark all parameters ready
    void (*backward_done)(void *state);     // mark the parameters that are still missing
    int (*buckets_started)(void *state, Error *err);
    int (*buckets_reduced)(void *state, Error *err); // also after an error
    void (*close)(void *state);
    bool graph_safe; // see reducer_unrecordable
} ReadyPolicy;

// Takes the policy, before the first forward; the one that was there is closed.
void reducer_set_policy(Reducer *reducer, ReadyPolicy policy);
const ReadyPolicy *reducer_policy(const Reducer *reducer); // its name is NULL if none was set
// This parameter's slice of its bucket holds what is to be reduced.
void reducer_mark_ready(Reducer *reducer, size_t parameter);
// The first error, for a policy that finds one: no iteration works after it.
Error *reducer_error(Reducer *reducer);

// ---- what else happens in an iteration --------------------------------------------------------

typedef void BucketEvent(void *state, const GradBucket *bucket);

// All functions are optional.
typedef struct DdpIteration {
    const char *name;
    void *state;
    // A forward begins. reduces: its backward will be reduced. May change *root, the rank whose
    // buffers (batch norm's running statistics) all ranks take over. An error fails the forward.
    int (*before)(void *state, bool reduces, int *root, Error *err);
    // Both are called in index order. bucket_full: all gradients of the bucket are ready, and its
    // hook is about to start. bucket_reduced: its hook has finished.
    BucketEvent *bucket_full, *bucket_reduced;
    void (*after)(void *state); // ddp_finish_backward has reduced all gradients, without an error
    void (*close)(void *state); // before the reducer lets go of the gradients
    bool graph_safe;            // see reducer_unrecordable
} DdpIteration;

enum { DDP_ITERATIONS_MAX = 8 };
// Takes one more DdpIteration. They must not depend on each other's order.
void reducer_add_iteration(Reducer *reducer, DdpIteration iteration);
void reducer_remove_iteration(Reducer *reducer, const void *state);      // closes it
const DdpIteration *reducer_iteration(const Reducer *reducer, size_t i); // NULL: there are no more
// The state of the one with this name, or NULL.
static inline void *reducer_find_iteration(const Reducer *reducer, const char *name) {
    const DdpIteration *iteration = reducer_iteration(reducer, 0);
    for (size_t i = 0; iteration; iteration = reducer_iteration(reducer, ++i))
        if (strcmp(iteration->name, name) == 0) return iteration->state;
    return NULL;
}
// For the wrapper: calls every `before`, and every `after`.
int reducer_before_forward(Reducer *reducer, bool reduces, int *root, Error *err);
void reducer_after_backward(Reducer *reducer);

// ---- steps that are recorded once and replayed (common/train/step_graph.h) --------------------

// What hangs here is called while a step is recorded, and not when it is replayed. It is graph_safe
// if a replay does what it would do: it asks the device for the same in every step, waits for
// nothing, and looks at no number of the device. What says nothing is not graph_safe. Returns the
// name of one that is not; NULL: a step may be recorded.
static inline const char *reducer_unrecordable(const Reducer *reducer) {
    const CommHook *hook = reducer_hook(reducer);
    const ReadyPolicy *policy = reducer_policy(reducer);
    const DdpIteration *iteration = reducer_iteration(reducer, 0);
    if (hook->name && !hook->graph_safe) return hook->name;
    if (policy->name && !policy->graph_safe) return policy->name;
    for (size_t i = 0; iteration; iteration = reducer_iteration(reducer, ++i))
        if (!iteration->graph_safe) return iteration->name;
    return NULL;
}

#endif
