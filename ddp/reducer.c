/* reducer.c: starts the reduction of each bucket of gradients when it is full.
 *
 *   reducer_prepare   before forward: expects every gradient (once: rebuilds the buckets)
 *   gradient_ready    during backward: decrements its bucket's count; starts full buckets
 *   reducer_finish    after backward: waits for the started buckets
 *
 * Invariant: buckets [0, launched) are in flight, and between a bucket's launch and the end of
 * reducer_finish only the group accesses its gradients. The group defines the sum, the tape the
 * order of readiness, the slab the memory.
 */
#include "ddp/reducer.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"

typedef struct ReducedGradient {
    Reducer *reducer;
    size_t index; // in Reducer.gradients
    bool ready;   // in this backward
} ReducedGradient;

// ---- the buckets ----------------------------------------------------------------------------

static size_t mebibytes(double count) {
    double bytes = count * 1024 * 1024;
    return bytes < 1e18 ? (size_t)bytes : BUCKET_UNLIMITED;
}

// Returns buckets of bucket_cap_mb if capped, else one per device. indices: see buckets_assign.
static BucketPlan plan_buckets(const Reducer *reducer, bool capped, const size_t *indices) {
    double cap = reducer->config.bucket_cap_mb;
    size_t limits[] = {mebibytes(cap < 0 ? 1 : cap), mebibytes(cap < 0 ? 25 : cap)};
    if (!capped) limits[0] = BUCKET_UNLIMITED; // never full: there is no second one
    return buckets_assign(reducer->slab.sizes, reducer->slab.parameters.count, limits, 2, indices);
}

// Lays out the buckets of the first backward (reducer.h).
static void make_buckets(Reducer *reducer) {
    BucketPlan plan = plan_buckets(reducer, reducer->policy.permanent_buckets, NULL);
    buckets_reverse(&plan);
    gradient_slab_lay_out(&reducer->slab, plan);
}

// Rebuilds by rank 0's order of readiness, so that all ranks have the same buckets. 0 or -1.
static int rebuild_buckets(Reducer *reducer) {
    size_t count = reducer->slab.parameters.count;
    if (pg_run(reducer->group, pg_broadcast(reducer->ready_order, count, PG_I64, 0),
               &reducer->error) != 0)
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

// The error of a forward before ddp_finish_backward of the previous backward.
static void fail_unawaited(Reducer *reducer) {
    error_set(&reducer->error, STATUS_FAILED,
              "Expected to have finished reduction in the prior iteration before starting a new "
              "one: ddp_finish_backward was not called after the last backward -- call it after "
              "each tape_backward, before the optimizer's step");
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
    if (reducer->expecting && reducer->ready_count > 0) fail_unawaited(reducer);
    if (report_error(reducer, err) != 0 || pg_check_sound(reducer->group, err) != 0) return -1;
    if (reduce && must_rebuild(reducer) && rebuild_buckets(reducer))
        return report_error(reducer, err);

    for (size_t i = 0; i < reducer->slab.parameters.count; i++) reducer->gradients[i].ready = false;
    for (size_t b = 0; b < reducer->slab.plan.bucket_count; b++)
        reducer->pending[b] = reducer->slab.buckets[b].parameter_count;
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

static int start_all_reduce(void *group, GradBucket *bucket, Error *err) {
    bucket->work = pg_start(group, grad_bucket_all_reduce(bucket, PG_F32, bucket->op), err);
    return bucket->work ? 0 : -1;
}

static int finish_all_reduce(void *group, GradBucket *bucket, Error *err) {
    (void)group;
    return pg_work_wait(bucket->work, NULL, &bucket->done_ns, err);
}

// ---- backward -------------------------------------------------------------------------------

static void tell_bucket(const Reducer *reducer, const GradBucket *bucket, bool reduced) {
    for (size_t i = 0; i < reducer->iteration_count; i++) {
        const DdpIteration *iteration = &reducer->iterations[i];
        BucketEvent *event = reduced ? iteration->bucket_reduced : iteration->bucket_full;
        if (event) event(iteration->state, bucket);
    }
}

// Names a function that failed without filling its error. error_set keeps the first error, so the
// function's own takes precedence.
static void note_failure(Reducer *reducer, const char *name, const char *function) {
    error_set(&reducer->error, STATUS_FAILED, "%s failed in %s and did not say why",
              name ? name : "the all-reduce of a bucket", function);
}

// Starts full buckets up to the first that is not full: all ranks start them in index order,
// independently of the order in which gradients become ready. Without overlap none starts in
// backward.
static void launch_full_buckets(Reducer *reducer, bool in_backward) {
    const CommHook *hook = &reducer->hook;
    if (in_backward && !reducer->config.overlap) return;
    while (reducer->launched < reducer->slab.plan.bucket_count) {
        GradBucket *bucket = &reducer->slab.buckets[reducer->launched];
        if (reducer->pending[bucket->index] > 0 || reducer->error.status != STATUS_OK) return;
        if (reducer->launched == 0) reducer->first_launch = clock_ns();
        bucket->done_ns = 0;
        tell_bucket(reducer, bucket, false);
        if (hook->start(hook->state, bucket, &reducer->error) != 0)
            note_failure(reducer, hook->name, "start");
        else
            reducer->launched++;
    }
}

// Waits for every launched bucket, also after an error.
static void finish_buckets(Reducer *reducer) {
    const CommHook *hook = &reducer->hook;
    for (size_t b = 0; b < reducer->launched; b++) {
        GradBucket *bucket = &reducer->slab.buckets[b];
        if (hook->finish(hook->state, bucket, &reducer->error) != 0)
            note_failure(reducer, hook->name, "finish");
        reducer->last_done = bucket->done_ns ? bucket->done_ns : clock_ns();
        tell_bucket(reducer, bucket, true);
    }
    reducer->launched = 0;
    for (size_t i = 0; i < reducer->slab.parameters.count; i++)
        reducer->slab.parameters.items[i].tensor->reducing = false;
}

// Marking a gradient twice in an iteration is an error.
void reducer_mark_ready(Reducer *reducer, size_t parameter) {
    ReducedGradient *gradient = &reducer->gradients[parameter];
    if (gradient->ready) {
        error_set(&reducer->error, STATUS_FAILED,
                  "Expected to mark a variable ready only once. Parameter at index %zu with name "
                  "%s has been marked as ready twice: it was part of two backwards since "
                  "the gradients were last reduced",
                  parameter, reducer->slab.parameters.items[parameter].name);
        return;
    }
    gradient->ready = true;
    reducer->slab.parameters.items[parameter].tensor->reducing = true;
    reducer->ready_order[reducer->ready_count++] = (int64_t)parameter;
    reducer->pending[reducer->slab.slices[parameter].bucket]--;
}

// Tensor.on_ready: this parameter's gradient is complete. Errors are kept for reducer_finish.
static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    (void)tensor, (void)err;
    const ReducedGradient *gradient = context;
    Reducer *reducer = gradient->reducer;
    const ReadyPolicy *policy = &reducer->policy;
    if (policy->gradient_completed && !policy->gradient_completed(policy->state, gradient->index))
        return 0;
    // Not expecting: the forward bypassed the wrapper, or ran under no_sync.
    if (!reducer->expecting) return 0;
    reducer_mark_ready(reducer, gradient->index);
    launch_full_buckets(reducer, true);
    return 0;
}

int reducer_finish(Reducer *reducer, Profile *profile, Error *err) {
    CHECK(
        reducer->expecting || reducer->error.status != STATUS_OK,
        "ddp_finish_backward without a forward of the wrapper: it was called twice, or the wrapped "
        "module was called instead of the wrapper");
    const ReadyPolicy *policy = &reducer->policy;
    reducer->backward_end = clock_ns();
    Phase phase = profile_enter(profile, PHASE_EXPOSED);
    if (policy->backward_done) policy->backward_done(policy->state);
    if (reducer->ready_count < reducer->slab.parameters.count) fail_unfinished(reducer);
    launch_full_buckets(reducer, false);
    if (policy->buckets_started && reducer->error.status == STATUS_OK &&
        policy->buckets_started(policy->state, &reducer->error) != 0)
        note_failure(reducer, policy->name, "buckets_started");
    finish_buckets(reducer);
    if (policy->buckets_reduced && policy->buckets_reduced(policy->state, &reducer->error) != 0)
        note_failure(reducer, policy->name, "buckets_reduced");
    reducer->expecting = false;
    reducer->finished_one = reducer->error.status == STATUS_OK;
    reducer->finish_end = clock_ns();
    profile_leave(profile, phase);
    return report_error(reducer, err);
}

// ---- opening, closing, queries --------------------------------------------------------------

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
        reducer->gradients[i] = (ReducedGradient){.reducer = reducer, .index = i};
        parameters.items[i].tensor->on_ready = gradient_ready;
        parameters.items[i].tensor->on_ready_context = &reducer->gradients[i];
    }
    if (gradient_slab_open(&reducer->slab, parameters, group, config->op, err) != 0) {
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

CommHook reducer_default_hook(ProcessGroup *group) {
    return (CommHook){.state = group, .start = start_all_reduce, .finish = finish_all_reduce};
}

void reducer_remove_hook(Reducer *reducer) {
    if (reducer->hook.close) reducer->hook.close(reducer->hook.state);
    reducer->hook = reducer_default_hook(reducer->group);
}

void reducer_set_policy(Reducer *reducer, ReadyPolicy policy) {
    CHECK(reducer->forward_start == 0, "%s must be set before the first forward of the wrapper",
          policy.name);
    if (reducer->policy.close) reducer->policy.close(reducer->policy.state);
    reducer->policy = policy;
    make_buckets(reducer);
}

// ---- further actions of an iteration --------------------------------------------------------

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

void *reducer_find_iteration(const Reducer *reducer, const char *name) {
    for (size_t i = 0; i < reducer->iteration_count; i++)
        if (strcmp(reducer->iterations[i].name, name) == 0) return reducer->iterations[i].state;
    return NULL;
}

const char *reducer_unrecordable(const Reducer *reducer) {
    const CommHook *hook = &reducer->hook;
    const ReadyPolicy *policy = &reducer->policy;
    if (hook->name && !hook->graph_safe) return hook->name;
    if (policy->name && !policy->graph_safe) return policy->name;
    for (size_t i = 0; i < reducer->iteration_count; i++)
        if (!reducer->iterations[i].graph_safe) return reducer->iterations[i].name;
    return NULL;
}

int reducer_before_forward(Reducer *reducer, bool reduces, int *root, Error *err) {
    for (size_t i = 0; i < reducer->iteration_count; i++) {
        const DdpIteration *iteration = &reducer->iterations[i];
        if (iteration->before && iteration->before(iteration->state, reduces, root, err) != 0)
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
    finish_buckets(reducer); // of a backward that failed: the hook's memory is in flight, too
    reducer_remove_hook(reducer);
    if (reducer->policy.close) reducer->policy.close(reducer->policy.state);
    while (reducer->iteration_count > 0)
        reducer_remove_iteration(reducer, reducer->iterations[0].state);
    for (size_t i = 0; i < reducer->slab.parameters.count; i++)
        reducer->slab.parameters.items[i].tensor->on_ready = NULL;
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
