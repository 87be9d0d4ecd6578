/* reducer.h: makes the ranks' gradients equal while backward is still running (PyTorch's Reducer).
 *
 * Gradients are grouped in buckets. All buckets are contiguous in one slab of memory shared by the
 * ranks: gradients are computed in place, and an all-reduce copies nothing in or out. When the last
 * gradient of a bucket is ready, the bucket's all-reduce starts on the communication thread. Every
 * rank starts the buckets in index order: a bucket that is full early waits for those before it.
 *
 * The first backward uses one bucket per device, because registration order may be far from the
 * order in which gradients become ready. The reducer records that order, broadcasts rank 0's, and
 * rebuilds the buckets by it before the second reduced forward (PyTorch: also before one under
 * no_sync): a first bucket that is full at 1 MiB (with the default cap), so that communication
 * starts early, then buckets that are full at bucket_cap bytes (buckets.h).
 *
 * Three extension points, each a table of functions and a state, taken by value:
 *
 *                  decides                                               default
 *   CommHook       how a full bucket is reduced                          an all-reduce
 *   ReadyPolicy    when a gradient is ready                              when the tape completes it
 *   DdpIteration   actions before a forward, at each bucket, after       none
 *                  the step
 *
 * A function marked optional may be NULL. A function that returns an int returns 0, or -1 with err
 * filled; if it leaves err empty, the reducer fills in an error that names the function. After the
 * first error the reducer starts no further bucket, finishes the started ones, and returns the
 * error from reducer_finish and every later reducer_prepare.
 */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "common/base/profile.h"
#include "common/nn/module.h"
#include "ddp/gradient_slab.h"

typedef struct ReducerConfig {
    // MiB; 0: every gradient alone; negative: PyTorch's default, 25 with a first of 1.
    double bucket_cap_mb;
    bool overlap; // false: start nothing before backward has ended
    ReduceOp op;  // PG_AVG (PyTorch), or PG_SUM when the loss is divided by the global batch
} ReducerConfig;

typedef struct Reducer Reducer;

// Returns a reducer of these parameters' gradients, whose memory is the slab from now on; NULL with
// err filled on error. Collective. Each parameter must require a gradient and have no memory for
// it. Takes the list.
Reducer *reducer_create(NamedTensors parameters, ProcessGroup *group, const ReducerConfig *config,
                        Error *err);
void reducer_close(Reducer *reducer); // the parameters have no gradient memory afterwards

// Before a forward. reduce: its backward is reduced; then expects every parameter's gradient, after
// rebuilding the buckets if due (collective). Otherwise expects none. Returns 0, or -1 with the
// first error, among them PyTorch's if the previous backward was not finished.
int reducer_prepare(Reducer *reducer, bool reduce, Error *err);

// Records the end of the forward, for reducer_times.
void reducer_forward_done(Reducer *reducer);

// After backward: waits for all buckets. On return every gradient is reduced and has the same bits
// on every rank. Returns 0, or -1 with err filled, which for PyTorch's error names the parameters
// without a gradient. The wait is charged to profile (may be NULL) as PHASE_EXPOSED.
int reducer_finish(Reducer *reducer, Profile *profile, Error *err);

// Durations of the last iteration in ns, between the five events of PyTorch's Logger
// (c10d/logger.cpp): forward begins, forward ends, the first bucket is launched, backward ends, the
// last bucket is reduced. exposed: the duration of reducer_finish.
typedef struct ReducerTimes {
    uint64_t forward_compute, backward_compute, backward_comm, overlap, exposed;
} ReducerTimes;
ReducerTimes reducer_times(const Reducer *reducer);

// ---- how a full bucket is reduced: a CommHook (comm_hook.h) -----------------------------------

// Takes the hook, before the first backward. Returns 0, or -1 with PyTorch's error if the hook is
// incomplete or a second one; then closes it. The reducer closes its hook when it is closed.
int reducer_set_hook(Reducer *reducer, CommHook hook, Error *err);
void reducer_remove_hook(Reducer *reducer);         // closes it: the default hook again
CommHook reducer_default_hook(ProcessGroup *group); // the plain all-reduce; name: NULL

// ---- when a gradient is ready -----------------------------------------------------------------

// Each function is named after the event that has just happened; they are in the order of the
// events. All are optional.
typedef struct ReadyPolicy {
    const char *name;
    void *state;
    // Buckets of bucket_cap bytes from the start, in registration order, and never rebuilt.
    bool permanent_buckets;
    void (*forward_begins)(void *state); // of a forward whose backward is reduced
    // The tape has completed a parameter's gradient, in a reduced backward or not. Returns whether
    // the gradient is ready now.
    bool (*gradient_completed)(void *state, size_t parameter);
    void (*backward_left_out)(void *state); // this rank skips backward: marks all parameters ready
    void (*backward_done)(void *state);     // marks the parameters without a gradient
    int (*buckets_started)(void *state, Error *err);
    int (*buckets_reduced)(void *state, Error *err); // also after an error
    void (*close)(void *state);
    bool graph_safe; // see reducer_unrecordable
} ReadyPolicy;

// Takes the policy and closes the previous one. Precondition (a CHECK): no forward yet.
void reducer_set_policy(Reducer *reducer, ReadyPolicy policy);
// Marks the parameter ready: its slice of the bucket holds the gradient to reduce. A bucket that is
// full then starts with the next gradient of the backward, or at its end.
void reducer_mark_ready(Reducer *reducer, size_t parameter);

// ---- further actions of an iteration ----------------------------------------------------------

typedef void BucketEvent(void *state, const GradBucket *bucket);

// All functions are optional.
typedef struct DdpIteration {
    const char *name;
    void *state;
    // A forward begins. reduces: its backward is reduced. May change *root, the rank that
    // broadcasts its buffers (batch norm's running statistics). An error fails the forward.
    int (*before)(void *state, bool reduces, int *root, Error *err);
    // Called in index order, before the hook's start (all gradients of the bucket are ready) and
    // after its finish.
    BucketEvent *bucket_full, *bucket_reduced;
    void (*after)(void *state); // ddp_finish_backward has reduced all gradients without error
    void (*close)(void *state); // before the reducer releases the gradients
    bool graph_safe;            // see reducer_unrecordable
} DdpIteration;

enum { DDP_ITERATIONS_MAX = 8 };
// Adds a DdpIteration. The order of their calls is unspecified.
void reducer_add_iteration(Reducer *reducer, DdpIteration iteration);
void reducer_remove_iteration(Reducer *reducer, const void *state); // closes it
// Returns the state of the DdpIteration of this name, or NULL.
void *reducer_find_iteration(const Reducer *reducer, const char *name);
// For the wrapper: call every `before` and every `after`.
int reducer_before_forward(Reducer *reducer, bool reduces, int *root, Error *err);
void reducer_after_backward(Reducer *reducer);

// ---- captured steps (common/train/step_graph.h) -----------------------------------------------

// Returns the name of a hook, policy or DdpIteration that prevents capturing a step; NULL: none.
// Their functions run when a step is captured, not when it is replayed. graph_safe: every step
// enqueues the same work on the device, without blocking and without reading a value back.
const char *reducer_unrecordable(const Reducer *reducer);

// ---- the state --------------------------------------------------------------------------------

// Features read it; only reducer.c writes it, except the error, which a policy may set.
struct Reducer {
    ProcessGroup *group;
    ReducerConfig config;
    CommHook hook;      // name: NULL if none was set
    ReadyPolicy policy; // name: NULL if none was set
    DdpIteration iterations[DDP_ITERATIONS_MAX];
    size_t iteration_count;
    GradientSlab slab;                 // the parameters, their gradients and the buckets
    struct ReducedGradient *gradients; // [parameters.count]
    bool rebuilt;                      // the buckets are in the order of readiness

    // The current iteration.
    bool expecting;       // between reducer_prepare and reducer_finish
    size_t *pending;      // [buckets] gradients of each that are not ready
    size_t launched;      // buckets in flight
    size_t ready_count;   // gradients
    int64_t *ready_order; // [parameters.count] in order of readiness; the first ready_count
    bool finished_one;    // a complete backward was reduced: ready_order is its order
    Error error;          // the first; every later iteration fails with it
    // clock_ns of PyTorch's events (F0, B0, C0, B1, C1) and of the end of reducer_finish.
    uint64_t forward_start, forward_end, first_launch, backward_end, last_done, finish_end;
};

#endif
