/* reducer.c: buckets of gradients, and when each is reduced.
 *
 *   reducer_prepare   before forward: expect every gradient anew (once: rebuild the buckets)
 *   gradient_ready    during backward: count down its bucket; start the buckets that are full
 *   reducer_finish    after backward: wait for what was started
 *
 * The slab holds every gradient once, each beginning on a cache line. The zeros in between are
 * reduced along: that costs less than starting one all-reduce per gradient. Its size does not
 * depend on the order of the gradients, so rebuilding moves gradients inside the slab and allocates
 * none.
 *
 * Invariant: buckets [0, launched) are with the group, the others are not, and nobody touches a
 * gradient between its bucket's launch and the end of reducer_finish. How bytes are summed is the
 * group's; which tensor is ready when is the tape's.
 */
#include "ddp/reducer.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"

enum { LINE_FLOATS = MEMORY_ALIGNMENT / sizeof(float) };

typedef struct Gradient {
    Reducer *reducer;
    size_t index; // in Reducer.gradients
    size_t bucket;
    float *slice; // of the bucket
    bool ready;   // in this backward
} Gradient;

typedef struct Bucket {
    GradBucket grad; // its buffer is a part of the slab
    size_t pending;  // gradients that are not ready
} Bucket;

struct Reducer {
    ProcessGroup *group;
    ReducerConfig config;
    CommHook hook;
    ReadyPolicy policy;
    DdpIteration iterations[DDP_ITERATIONS_MAX];
    size_t iteration_count;
    NamedTensors parameters; // in registration order
    Gradient *gradients;     // [parameters.count]
    BucketTensor *sizes;     // [parameters.count]
    float *slab;             // [slab_floats], the group's shared memory
    size_t slab_floats;

    BucketPlan plan;
    Bucket *buckets;  // [plan.bucket_count]
    Tensor **members; // [parameters.count] the parameters in the order of the plan
    bool rebuilt;

    // The current iteration.
    bool expecting;       // between reducer_prepare and reducer_finish
    size_t launched;      // buckets
    size_t ready_count;   // gradients
    int64_t *ready_order; // [parameters.count] as they became ready, the first ready_count
    bool finished_one;    // a whole backward has been reduced, and ready_order holds its order
    Error error;          // the first; no iteration works after it
    // PyTorch's events (F0, B0, C0, B1, C1) and the end of reducer_finish, clock_ns.
    uint64_t forward_start, forward_end, first_launch, backward_end, last_done, finish_end;
};

// ---- where gradients lie --------------------------------------------------------------------

static Tensor *tensor_of(const Reducer *reducer, size_t parameter) {
    return reducer->parameters.items[parameter].tensor;
}

static size_t slice_floats(const Tensor *tensor) {
    return (tensor_count(tensor) + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

// Tensors of different devices never share a bucket: the key is the first parameter there.
static int device_key(const Reducer *reducer, size_t parameter) {
    size_t first = 0;
    while (tensor_of(reducer, first)->device != tensor_of(reducer, parameter)->device) first++;
    return (int)first;
}

// Whether the parameter's gradient lies in its slice, and not where a feature keeps it.
static bool is_here(const Reducer *reducer, size_t parameter) {
    return tensor_of(reducer, parameter)->grad == reducer->gradients[parameter].slice;
}

// Gives gradient i of the plan its slice, at `next`. `before` is a copy of the slab from which
// defined gradients are brought along, or NULL if there are none.
static void lay_gradient(Reducer *reducer, size_t i, size_t bucket, float *next,
                         const float *before) {
    size_t parameter = reducer->plan.order[i];
    Tensor *tensor = tensor_of(reducer, parameter);
    Gradient *gradient = &reducer->gradients[parameter];
    device_kernels(tensor->device)->elementwise->fill(next, 0.0f, slice_floats(tensor));
    if (is_here(reducer, parameter)) {
        if (tensor->has_grad)
            device_copy(tensor->device, next, tensor_of(reducer, 0)->device,
                        before + (tensor->grad - reducer->slab), tensor_bytes(tensor));
        tensor->grad = next;
    }
    gradient->slice = next;
    gradient->bucket = bucket;
    reducer->members[i] = tensor;
}

static void lay_out_buckets(Reducer *reducer, const float *before) {
    const BucketPlan *plan = &reducer->plan;
    free(reducer->buckets);
    reducer->buckets = memory_zalloc(plan->bucket_count * sizeof *reducer->buckets);
    float *next = reducer->slab;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        float *begin = next;
        for (size_t i = plan->start[b]; i < plan->start[b + 1]; i++) {
            lay_gradient(reducer, i, b, next, before);
            next += slice_floats(reducer->members[i]);
        }
        reducer->buckets[b].grad =
            (GradBucket){.index = b,
                         .is_last = b + 1 == plan->bucket_count,
                         .device = reducer->members[plan->start[b]]->device,
                         .buffer = begin,
                         .count = (size_t)(next - begin),
                         .parameters = reducer->members + plan->start[b],
                         .parameter_count = plan->start[b + 1] - plan->start[b],
                         .op = reducer->config.op};
    }
}

static bool must_move(const Reducer *reducer, size_t parameter) {
    return tensor_of(reducer, parameter)->has_grad && is_here(reducer, parameter);
}

static void move_gradients(Reducer *reducer) {
    bool defined = false; // no, if the caller began the step with zero_grad
    for (size_t i = 0; i < reducer->parameters.count; i++)
        defined = defined || must_move(reducer, i);
    if (!defined) {
        lay_out_buckets(reducer, NULL);
        return;
    }
    Device *device = tensor_of(reducer, 0)->device;
    size_t bytes = reducer->slab_floats * sizeof(float);
    float *before = device_alloc(device, bytes);
    for (size_t i = 0; i < reducer->parameters.count; i++) {
        const Tensor *tensor = tensor_of(reducer, i);
        if (must_move(reducer, i))
            device_copy(device, before + (tensor->grad - reducer->slab), tensor->device,
                        tensor->grad, tensor_bytes(tensor));
    }
    lay_out_buckets(reducer, before);
    device_free(device, before, bytes);
}

static size_t mebibytes(double count) {
    double bytes = count * 1024 * 1024;
    return bytes < 1e18 ? (size_t)bytes : BUCKET_UNLIMITED;
}

// Plans buckets: by bucket_cap_mb if capped, otherwise one per device. indices: see buckets_assign.
static void assign_buckets(Reducer *reducer, bool capped, const size_t *indices) {
    double cap = reducer->config.bucket_cap_mb;
    size_t limits[] = {mebibytes(cap < 0 ? 1 : cap), mebibytes(cap < 0 ? 25 : cap)};
    if (!capped) limits[0] = limits[1] = BUCKET_UNLIMITED;
    buckets_free(&reducer->plan);
    reducer->plan = buckets_assign(reducer->sizes, reducer->parameters.count, limits, 2, indices);
}

// Makes the first buckets; reducer.h says which they are.
static void plan_first(Reducer *reducer) {
    assign_buckets(reducer, reducer->policy.permanent_buckets, NULL);
    buckets_reverse(&reducer->plan);
    lay_out_buckets(reducer, NULL);
}

// The order is that of readiness on rank 0, because all ranks must have the same buckets.
static int rebuild_buckets(Reducer *reducer) {
    size_t count = reducer->parameters.count;
    if (pg_run(reducer->group, pg_broadcast(reducer->ready_order, count, PG_I64, 0),
               &reducer->error))
        return -1;
    size_t *indices = memory_zalloc(count * sizeof *indices);
    for (size_t i = 0; i < count; i++) indices[i] = (size_t)reducer->ready_order[i];
    assign_buckets(reducer, true, indices);
    free(indices);
    move_gradients(reducer);
    reducer->rebuilt = true;
    return 0;
}

// ---- one iteration --------------------------------------------------------------------------

// "Parameters which did not receive grad for rank 1: fc1.weight, fc2.bias"
static void fail_unfinished(Reducer *reducer) {
    char names[512] = "";
    bool fits = true;
    for (size_t i = 0; i < reducer->parameters.count && fits; i++)
        if (!reducer->gradients[i].ready)
            fits = format_append(names, sizeof names, "%s%s", *names ? ", " : "",
                                 reducer->parameters.items[i].name);
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

    for (size_t i = 0; i < reducer->parameters.count; i++) reducer->gradients[i].ready = false;
    for (size_t b = 0; b < reducer->plan.bucket_count; b++)
        reducer->buckets[b].pending = reducer->plan.start[b + 1] - reducer->plan.start[b];
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
    while (reducer->launched < reducer->plan.bucket_count) {
        Bucket *bucket = &reducer->buckets[reducer->launched];
        if (bucket->pending > 0 || reducer->error.status != STATUS_OK) return;
        if (reducer->launched == 0) reducer->first_launch = clock_ns();
        bucket->grad.done_ns = 0;
        tell_bucket(reducer, &bucket->grad, false);
        if (hook->start(hook->state, &bucket->grad, &reducer->error))
            note_failure(reducer, hook->name, "start");
        else
            reducer->launched++;
    }
}

// Waits for every bucket that was launched, also after an error.
static void finish_buckets(Reducer *reducer) {
    const CommHook *hook = &reducer->hook;
    for (size_t b = 0; b < reducer->launched; b++) {
        GradBucket *bucket = &reducer->buckets[b].grad;
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
                  parameter, reducer->parameters.items[parameter].name);
        return;
    }
    gradient->ready = true;
    reducer->ready_order[reducer->ready_count++] = (int64_t)parameter;
    reducer->buckets[gradient->bucket].pending--;
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
    if (reducer->ready_count < reducer->parameters.count) fail_unfinished(reducer);
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

static Reducer *fill_reducer(NamedTensors parameters, ProcessGroup *group,
                             const ReducerConfig *config) {
    Reducer *reducer = memory_zalloc(sizeof *reducer);
    reducer->group = group;
    reducer->config = *config;
    reducer_remove_hook(reducer);
    reducer->parameters = parameters;
    reducer->gradients = memory_zalloc(parameters.count * sizeof *reducer->gradients);
    reducer->sizes = memory_zalloc(parameters.count * sizeof *reducer->sizes);
    reducer->members = memory_zalloc(parameters.count * sizeof *reducer->members);
    reducer->ready_order = memory_zalloc(parameters.count * sizeof *reducer->ready_order);
    for (size_t i = 0; i < parameters.count; i++) {
        Gradient *gradient = &reducer->gradients[i];
        Tensor *tensor = parameters.items[i].tensor;
        *gradient = (Gradient){.reducer = reducer, .index = i};
        reducer->sizes[i] = (BucketTensor){tensor_bytes(tensor), device_key(reducer, i)};
        tensor->on_ready = gradient_ready;
        tensor->on_ready_context = gradient;
        device_count(tensor->device, slice_floats(tensor) * sizeof(float));
        reducer->slab_floats += slice_floats(tensor);
    }
    return reducer;
}

Reducer *reducer_create(NamedTensors parameters, ProcessGroup *group, const ReducerConfig *config,
                        Error *err) {
    Reducer *reducer = fill_reducer(parameters, group, config);
    reducer->slab = pg_shared_alloc(group, reducer->slab_floats * sizeof(float), err);
    if (!reducer->slab) {
        reducer_close(reducer);
        return NULL;
    }
    plan_first(reducer);
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
    plan_first(reducer);
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

// The slab is left to pg_close: giving it back here would take all ranks, and one that has failed
// may be alone.
void reducer_close(Reducer *reducer) {
    if (!reducer) return;
    reducer_remove_hook(reducer);
    if (reducer->policy.close) reducer->policy.close(reducer->policy.state);
    while (reducer->iteration_count > 0)
        reducer_remove_iteration(reducer, reducer->iterations[0].state);
    for (size_t i = 0; i < reducer->parameters.count; i++) {
        Tensor *tensor = tensor_of(reducer, i);
        device_uncount(tensor->device, slice_floats(tensor) * sizeof(float));
        if (is_here(reducer, i)) tensor->grad = NULL;
        tensor->has_grad = false;
        tensor->on_ready = NULL;
        tensor->on_ready_context = NULL;
    }
    buckets_free(&reducer->plan);
    named_tensors_free(&reducer->parameters);
    free(reducer->buckets);
    free(reducer->members);
    free(reducer->gradients);
    free(reducer->sizes);
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
    return &reducer->parameters;
}
const BucketPlan *reducer_plan(const Reducer *reducer) {
    return &reducer->plan;
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
    return reducer->gradients[parameter].slice;
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
