/* reducer.c: buckets of gradients, and when each is reduced.
 *
 *   reducer_prepare   before forward: expect every gradient anew (once: rebuild the buckets)
 *   gradient_ready    during backward: count down its bucket; start the buckets that are full
 *   reducer_finish    after backward: wait for what was started
 *
 * Invariant: buckets [0, launched) are with the group, the others are not, and nobody touches a
 * gradient between its bucket's launch and the end of reducer_finish. How bytes are summed is the
 * group's; which tensor is ready when is the tape's; where its gradient lies is the slab's.
 */
#include "ddp/reducer.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/gradient_slab.h"

typedef struct Gradient {
    Reducer *reducer;
    size_t index; // in Reducer.gradients
    bool ready;   // in this backward
} Gradient;

struct Reducer {
    ProcessGroup *group;
    ReducerConfig config;
    CommHook hook;
    ReadyPolicy policy;
    DdpIteration iterations[DDP_ITERATIONS_MAX];
    size_t iteration_count;
    GradientSlab slab;   // the parameters, their gradients and the buckets
    Gradient *gradients; // [parameters.count]
    bool rebuilt;        // the buckets

    // The current iteration.
    bool expecting;       // between reducer_prepare and reducer_finish
    size_t *pending;      // [buckets] how many gradients of each are not ready
    size_t launched;      // buckets
    size_t ready_count;   // gradients
    int64_t *ready_order; // [parameters.count] as they became ready, the first ready_count
    bool finished_one;    // a whole backward has been reduced, and ready_order holds its order
    Error error;          // the first; no iteration works after it
    // PyTorch's events (F0, B0, C0, B1, C1) and the end of reducer_finish, clock_ns.
    uint64_t forward_start, forward_end, first_launch, backward_end, last_done, finish_end;
};

// ---- the buckets ----------------------------------------------------------------------------

static size_t mebibytes(double count) {
    double bytes = count * 1024 * 1024;
    return bytes < 1e18 ? (size_t)bytes : BUCKET_UNLIMITED;
}

// By bucket_cap_mb if capped, otherwise one bucket per device. indices: see buckets_assign.
static BucketPlan plan_buckets(const Reducer *reducer, bool capped, const size_t *indices) {
    double cap = reducer->config.bucket_cap_mb;
    size_t limits[] = {mebibytes(cap < 0 ? 1 : cap), mebibytes(cap < 0 ? 25 : cap)};
    if (!capped) limits[0] = limits[1] = BUCKET_UNLIMITED;
    return buckets_assign(reducer->slab.sizes, reducer->slab.parameters.count, limits, 2, indices);
}

// Makes the first buckets; reducer.h says which they are.
static void make_buckets(Reducer *reducer) {
    BucketPlan plan = plan_buckets(reducer, reducer->policy.permanent_buckets, NULL);
    buckets_reverse(&plan);
    gradient_slab_lay_out(&reducer->slab, plan);
}

// The order is that of readiness on rank 0, because all ranks must have the same buckets.
static int rebuild_buckets(Reducer *reducer) {
    size_t count = reducer->slab.parameters.count;
    if (pg_run(reducer->group, pg_broadcast(reducer->ready_order, count, PG_I64, 0),
               &reducer->error))
        return -1;
    size_t *indices = memory_zalloc(count * sizeof *indices);
    for (size_t i = 0; i < count; i++) indices[i] = (size_t)reducer->ready_order[i];
    gradient_slab_lay_out(&reducer->slab, plan_buckets(reducer, true, indices));
    free(indices);
    reducer->rebuilt = true;
    return 0;
}

// ---- one iteration --------------------------------------------------------------------------

// "Parameters which did not receive grad for rank 1: fc1.weight, fc2.bias"
static void fail_unfinished(Reducer *reducer) {
    char names[512] = "";
    bool fits = true;
    for (size_t i = 0; i < reducer->slab.parameters.count && fits; i++)
        if (!reducer->gradients[i].ready)
            fits = format_append(names, sizeof names, "%s%s", *names ? ", " : "",
                                 reducer->slab.parameters.items[i].name);
    error_set(&reducer->error, STATUS_FAILED,
              "Expected to have finished reduction in the prior iteration before starting a new "
              "one. This error indicates that your module has parameters that were not used in "
              "producing loss. Parameters which did not receive grad for rank %d: %s%s",
              pg_rank(reducer->group), *names ? names : "none", fits ? "" : "...");
}

static int report_error(const Reducer *reducer, Error *err) {
    if (reducer->error.status == STATUS_OK) return 0;
    return error_set(err, reducer->error.status, "%s", reducer->error.message);
}

static bool must_rebuild(const Reducer *reducer) {
    return reducer->finished_one && !reducer->rebuilt && !reducer->policy.permanent_buckets;
}

int reducer_prepare(Reducer *reducer, bool reduce, Error *err) {
    reducer->forward_start = clock_ns();
    if (reducer->expecting && reducer->ready_count > 0) fail_unfinished(reducer);
    if (report_error(reducer, err)) return -1;
    if (reduce && must_rebuild(reducer) && rebuild_buckets(reducer))
        return report_error(reducer, err);

    for (size_t i = 0; i < reducer->slab.parameters.count; i++) reducer->gradients[i].ready = false;
    for (size_t b = 0; b < reducer->slab.plan.bucket_count; b++)
        reducer->pending[b] = reducer->slab.buckets[b].parameter_count;
    reducer->launched = 0;
    reducer->ready_count = 0;
    reducer->expecting = reduce;
    const ReadyPolicy *policy = &reducer->policy;
    if (reduce && policy->forward_begins) policy->forward_begins(policy->state);
    return report_error(reducer, err);
}

void reducer_forward_done(Reducer *reducer) {
    reducer->forward_end = clock_ns();
}

// ---- the all-reduce of a bucket -------------------------------------------------------------

int grad_bucket_start(GradBucket *bucket, ProcessGroup *group, PgType type, ReduceOp op,
                      Error *err) {
    Collective sum = pg_all_reduce(bucket->buffer, bucket->count, type, op);
    bucket->work = pg_start(group, pg_of_bucket(sum, bucket->index), err);
    return bucket->work ? 0 : -1;
}

int grad_bucket_finish(GradBucket *bucket, Error *err) {
    return work_wait(bucket->work, NULL, &bucket->done_ns, err);
}

static int start_all_reduce(void *group, GradBucket *bucket, Error *err) {
    return grad_bucket_start(bucket, group, PG_F32, bucket->op, err);
}

static int finish_all_reduce(void *group, GradBucket *bucket, Error *err) {
    (void)group;
    return grad_bucket_finish(bucket, err);
}

// ---- backward -------------------------------------------------------------------------------

static void tell_bucket(const Reducer *reducer, const GradBucket *bucket, bool reduced) {
    for (size_t i = 0; i < reducer->iteration_count; i++) {
        const DdpIteration *iteration = &reducer->iterations[i];
        BucketEvent *event = reduced ? iteration->bucket_reduced : iteration->bucket_full;
        if (event) event(iteration->state, bucket);
    }
}

// A hook or a policy has failed. error_set keeps the first error: this one stands only if the
// callback gave none, for an error that nobody can read must not pass for success.
static void note_failure(Reducer *reducer, const char *name, const char *function) {
    error_set(&reducer->error, STATUS_FAILED, "%s failed in %s and did not say why",
              name ? name : "the all-reduce of a bucket", function);
}

// Starts every bucket that is full and has none before it that is not. So all ranks start them in
// the same order, though gradients may become ready in different orders.
static void launch_full_buckets(Reducer *reducer) {
    const CommHook *hook = &reducer->hook;
    while (reducer->launched < reducer->slab.plan.bucket_count) {
        GradBucket *bucket = &reducer->slab.buckets[reducer->launched];
        if (reducer->pending[bucket->index] > 0 || reducer->error.status != STATUS_OK) return;
        if (reducer->launched == 0) reducer->first_launch = clock_ns();
        bucket->done_ns = 0;
        tell_bucket(reducer, bucket, false);
        if (hook->start(hook->state, bucket, &reducer->error))
            note_failure(reducer, hook->name, "start");
        else
            reducer->launched++;
    }
}

// Waits for every bucket that was launched, also after an error.
static void finish_buckets(Reducer *reducer) {
    const CommHook *hook = &reducer->hook;
    for (size_t b = 0; b < reducer->launched; b++) {
        GradBucket *bucket = &reducer->slab.buckets[b];
        if (hook->finish(hook->state, bucket, &reducer->error))
            note_failure(reducer, hook->name, "finish");
        reducer->last_done = bucket->done_ns ? bucket->done_ns : clock_ns();
        tell_bucket(reducer, bucket, true);
    }
    reducer->launched = 0;
}

void reducer_mark_ready(Reducer *reducer, size_t parameter) {
    Gradient *gradient = &reducer->gradients[parameter];
    if (gradient->ready) {
        error_set(&reducer->error, STATUS_FAILED,
                  "Expected to mark a variable ready only once. Parameter at index %zu with name "
                  "%s has been marked as ready twice: it was part of two backwards since "
                  "the gradients were last reduced",
                  parameter, reducer->slab.parameters.items[parameter].name);
        return;
    }
    gradient->ready = true;
    reducer->ready_order[reducer->ready_count++] = (int64_t)parameter;
    reducer->pending[reducer->slab.places[parameter].bucket]--;
    if (reducer->config.overlap) launch_full_buckets(reducer);
}

// Tensor.on_ready: this parameter's gradient is complete. A hook cannot fail, so an error is kept
// for reducer_finish.
static void gradient_ready(void *context, Tensor *tensor) {
    (void)tensor;
    const Gradient *gradient = context;
    Reducer *reducer = gradient->reducer;
    const ReadyPolicy *policy = &reducer->policy;
    if (policy->gradient_completed && !policy->gradient_completed(policy->state, gradient->index))
        return;
    // Not expected: the forward did not go through the wrapper, or under no_sync.
    if (reducer->expecting) reducer_mark_ready(reducer, gradient->index);
}

int reducer_finish(Reducer *reducer, Profile *profile, Error *err) {
    CHECK(reducer->expecting || reducer->error.status != STATUS_OK,
          "reducer_finish without reducer_prepare");
    const ReadyPolicy *policy = &reducer->policy;
    reducer->backward_end = clock_ns();
    Phase phase = profile_enter(profile, PHASE_EXPOSED);
    if (policy->backward_done) policy->backward_done(policy->state);
    if (reducer->ready_count < reducer->slab.parameters.count) fail_unfinished(reducer);
    launch_full_buckets(reducer);
    if (policy->buckets_started && reducer->error.status == STATUS_OK &&
        policy->buckets_started(policy->state, &reducer->error))
        note_failure(reducer, policy->name, "buckets_started");
    finish_buckets(reducer);
    if (policy->buckets_reduced && policy->buckets_reduced(policy->state, &reducer->error))
        note_failure(reducer, policy->name, "buckets_reduced");
    reducer->expecting = false;
    reducer->finished_one = reducer->error.status == STATUS_OK;
    reducer->finish_end = clock_ns();
    profile_leave(profile, phase);
    return report_error(reducer, err);
}

// ---- opening, closing, looking --------------------------------------------------------------

Reducer *reducer_create(NamedTensors parameters, ProcessGroup *group, const ReducerConfig *config,
                        Error *err) {
    Reducer *reducer = memory_zalloc(sizeof *reducer);
    reducer->group = group;
    reducer->config = *config;
    reducer_remove_hook(reducer);
    reducer->gradients = memory_zalloc(parameters.count * sizeof *reducer->gradients);
    reducer->pending = memory_zalloc(parameters.count * sizeof *reducer->pending);
    reducer->ready_order = memory_zalloc(parameters.count * sizeof *reducer->ready_order);
    for (size_t i = 0; i < parameters.count; i++) {
        reducer->gradients[i] = (Gradient){.reducer = reducer, .index = i};
        parameters.items[i].tensor->on_ready = gradient_ready;
        parameters.items[i].tensor->on_ready_context = &reducer->gradients[i];
    }
    if (gradient_slab_open(&reducer->slab, parameters, group, config->op, err)) {
        reducer_close(reducer);
        return NULL;
    }
    make_buckets(reducer);
    return reducer;
}

int reducer_set_hook(Reducer *reducer, CommHook hook, Error *err) {
    int status = 0;
    if (!hook.name || !hook.start || !hook.finish)
        status =
            error_set(err, STATUS_FAILED,
                      "Communication hook must be callable: it needs a name, start and finish");
    else if (reducer->hook.name)
        status = error_set(err, STATUS_FAILED,
                           "register_comm_hook or register_builtin_comm_hook can only be called "
                           "once. This model has the hook %s; %s is refused",
                           reducer->hook.name, hook.name);
    if (status == 0)
        reducer->hook = hook;
    else if (hook.close)
        hook.close(hook.state);
    return status;
}

void reducer_remove_hook(Reducer *reducer) {
    if (reducer->hook.close) reducer->hook.close(reducer->hook.state);
    reducer->hook =
        (CommHook){.state = reducer->group, .start = start_all_reduce, .finish = finish_all_reduce};
}

void reducer_set_policy(Reducer *reducer, ReadyPolicy policy) {
    if (reducer->policy.close) reducer->policy.close(reducer->policy.state);
    reducer->policy = policy;
    make_buckets(reducer);
}

// ---- what else happens in an iteration ------------------------------------------------------

void reducer_add_iteration(Reducer *reducer, DdpIteration iteration) {
    CHECK(reducer->iteration_count < DDP_ITERATIONS_MAX, "no room for %s", iteration.name);
    reducer->iterations[reducer->iteration_count++] = iteration;
}

void reducer_remove_iteration(Reducer *reducer, const void *state) {
    size_t i = 0;
    while (i < reducer->iteration_count && reducer->iterations[i].state != state) i++;
    if (i == reducer->iteration_count) return;
    if (reducer->iterations[i].close) reducer->iterations[i].close(reducer->iterations[i].state);
    reducer->iterations[i] = reducer->iterations[--reducer->iteration_count];
}

const DdpIteration *reducer_iteration(const Reducer *reducer, size_t i) {
    return i < reducer->iteration_count ? &reducer->iterations[i] : NULL;
}

int reducer_before_forward(Reducer *reducer, bool reduces, int *root, Error *err) {
    for (size_t i = 0; i < reducer->iteration_count; i++) {
        const DdpIteration *iteration = &reducer->iterations[i];
        if (iteration->before && iteration->before(iteration->state, reduces, root, err))
            return error_set(err, STATUS_FAILED, "%s failed before a forward and did not say why",
                             iteration->name);
    }
    return 0;
}

void reducer_after_backward(Reducer *reducer) {
    for (size_t i = 0; i < reducer->iteration_count; i++)
        if (reducer->iterations[i].after)
            reducer->iterations[i].after(reducer->iterations[i].state);
}

void reducer_close(Reducer *reducer) {
    if (!reducer) return;
    reducer_remove_hook(reducer);
    if (reducer->policy.close) reducer->policy.close(reducer->policy.state);
    while (reducer->iteration_count > 0)
        reducer_remove_iteration(reducer, reducer->iterations[0].state);
    for (size_t i = 0; i < reducer->slab.parameters.count; i++) {
        reducer->slab.parameters.items[i].tensor->on_ready = NULL;
        reducer->slab.parameters.items[i].tensor->on_ready_context = NULL;
    }
    gradient_slab_close(&reducer->slab);
    free(reducer->gradients);
    free(reducer->pending);
    free(reducer->ready_order);
    free(reducer);
}

ReducerTimes reducer_times(const Reducer *reducer) {
    uint64_t begin = reducer->first_launch, end = reducer->backward_end;
    uint64_t both_end = end < reducer->last_done ? end : reducer->last_done;
    return (ReducerTimes){.forward_compute = reducer->forward_end - reducer->forward_start,
                          .backward_compute = end - reducer->forward_end,
                          .backward_comm = reducer->last_done - begin,
                          .overlap = begin < both_end ? both_end - begin : 0,
                          .exposed = reducer->finish_end - end};
}

const NamedTensors *reducer_parameters(const Reducer *reducer) {
    return &reducer->slab.parameters;
}
const BucketPlan *reducer_plan(const Reducer *reducer) {
    return &reducer->slab.plan;
}
ProcessGroup *reducer_group(const Reducer *reducer) {
    return reducer->group;
}
const CommHook *reducer_hook(const Reducer *reducer) {
    return &reducer->hook;
}
const ReadyPolicy *reducer_policy(const Reducer *reducer) {
    return &reducer->policy;
}
bool reducer_rebuilt(const Reducer *reducer) {
    return reducer->rebuilt;
}
float *reducer_slice(const Reducer *reducer, size_t parameter) {
    return reducer->slab.places[parameter].slice;
}
const int64_t *reducer_ready_order(const Reducer *reducer, size_t *count) {
    *count = reducer->ready_count;
    return reducer->ready_order;
}
bool reducer_expecting(const Reducer *reducer) {
    return reducer->expecting;
}
Error *reducer_error(Reducer *reducer) {
    return &reducer->error;
}
