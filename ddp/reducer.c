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

#include "common/base/clock.h"
#include "common/base/memory.h"

enum { LINE_FLOATS = MEMORY_ALIGNMENT / sizeof(float) };

typedef struct Gradient {
    Reducer *reducer;
    size_t index; // in Reducer.gradients
    size_t bucket;
    bool ready; // in this backward
} Gradient;

typedef struct Bucket {
    float *begin;   // [count], a part of the slab
    size_t count;   // floats, with the zeros between gradients
    size_t pending; // gradients that are not ready
    Work *work;     // its all-reduce, once launched
} Bucket;

struct Reducer {
    ProcessGroup *group;
    ReducerConfig config;
    Device *device;
    NamedTensors parameters; // those that require a gradient, in registration order
    Gradient *gradients;     // [parameters.count]
    float *slab;             // [slab_floats], the group's shared memory
    size_t slab_floats;

    BucketPlan plan;
    Bucket *buckets; // [plan.bucket_count]
    bool rebuilt;

    // The current iteration.
    bool expecting;     // between reducer_prepare and reducer_finish
    size_t launched;    // buckets
    size_t ready_count; // gradients
    int64_t
        *ready_order;  // [parameters.count] parameters as they became ready, the first ready_count
    bool finished_one; // a whole backward has been reduced, and ready_order holds its order
    Error error;       // the first; no iteration works after it
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

// limits and indices are as for buckets_assign.
static BucketPlan assign(const Reducer *reducer, const size_t *limits, size_t limit_count,
                         const size_t *indices) {
    size_t count = reducer->parameters.count;
    BucketTensor *tensors = memory_zalloc(count * sizeof *tensors); // one dtype, one device: key 0
    for (size_t i = 0; i < count; i++)
        tensors[i].bytes = tensor_count(tensor_of(reducer, i)) * sizeof(float);
    BucketPlan plan = buckets_assign(tensors, count, limits, limit_count, indices);
    free(tensors);
    return plan;
}

// Gives every gradient of the plan its slice. `before` is a copy of the slab from which defined
// gradients are brought along, or NULL if there are none.
static void lay_out(Reducer *reducer, const float *before) {
    const BucketPlan *plan = &reducer->plan;
    free(reducer->buckets);
    reducer->buckets = memory_zalloc(plan->bucket_count * sizeof *reducer->buckets);
    reducer->device->kernels->fill(reducer->slab, 0.0f, reducer->slab_floats);
    float *next = reducer->slab;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        Bucket *bucket = &reducer->buckets[b];
        bucket->begin = next;
        for (size_t i = plan->start[b]; i < plan->start[b + 1]; i++) {
            Tensor *tensor = tensor_of(reducer, plan->order[i]);
            if (tensor->has_grad)
                device_copy(reducer->device, next, reducer->device,
                            before + (tensor->grad - reducer->slab),
                            tensor_count(tensor) * sizeof(float));
            tensor->grad = next;
            reducer->gradients[plan->order[i]].bucket = b;
            next += slice_floats(tensor);
        }
        bucket->count = (size_t)(next - bucket->begin);
    }
}

static void move_gradients(Reducer *reducer) {
    bool defined = false; // no, if the caller began the step with zero_grad
    for (size_t i = 0; i < reducer->parameters.count; i++)
        defined = defined || tensor_of(reducer, i)->has_grad;
    if (!defined) {
        lay_out(reducer, NULL);
        return;
    }
    size_t bytes = reducer->slab_floats * sizeof(float);
    float *before = device_alloc(reducer->device, bytes);
    device_copy(reducer->device, before, reducer->device, reducer->slab, bytes);
    lay_out(reducer, before);
    device_free(reducer->device, before, bytes);
}

static size_t mebibytes(double count) {
    double bytes = count * 1024 * 1024;
    return bytes < 1e18 ? (size_t)bytes : BUCKET_UNLIMITED;
}

// By the order in which gradients became ready on rank 0, for all ranks must have the same buckets.
static int rebuild(Reducer *reducer) {
    size_t count = reducer->parameters.count;
    if (pg_run(reducer->group, pg_broadcast(reducer->ready_order, count, PG_I64, 0),
               &reducer->error))
        return -1;
    size_t *indices = memory_zalloc(count * sizeof *indices);
    for (size_t i = 0; i < count; i++) indices[i] = (size_t)reducer->ready_order[i];
    double cap = reducer->config.bucket_cap_mb;
    size_t limits[] = {mebibytes(cap < 0 ? 1 : cap), mebibytes(cap < 0 ? 25 : cap)};
    buckets_free(&reducer->plan);
    reducer->plan = assign(reducer, limits, 2, indices);
    free(indices);
    move_gradients(reducer);
    reducer->rebuilt = true;
    return 0;
}

// ---- one iteration --------------------------------------------------------------------------

// "Parameters which did not receive grad for rank 1: fc1.weight, fc2.bias"
static void fail_unfinished(Reducer *reducer) {
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < reducer->parameters.count && used < sizeof names; i++)
        if (!reducer->gradients[i].ready)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     reducer->parameters.items[i].name);
    error_set(&reducer->error, STATUS_FAILED,
              "Expected to have finished reduction in the prior iteration before starting a new "
              "one. This error indicates that your module has parameters that were not used in "
              "producing loss. Parameters which did not receive grad for rank %d: %s%s",
              pg_rank(reducer->group), used ? names : "none", used < sizeof names ? "" : "...");
}

static int report(const Reducer *reducer, Error *err) {
    if (reducer->error.status == STATUS_OK) return 0;
    return error_set(err, reducer->error.status, "%s", reducer->error.message);
}

int reducer_prepare(Reducer *reducer, Error *err) {
    reducer->forward_start = clock_ns();
    if (reducer->expecting && reducer->ready_count > 0) fail_unfinished(reducer);
    if (report(reducer, err)) return -1;
    if (reducer->finished_one && !reducer->rebuilt && rebuild(reducer)) return report(reducer, err);

    for (size_t i = 0; i < reducer->parameters.count; i++) reducer->gradients[i].ready = false;
    for (size_t b = 0; b < reducer->plan.bucket_count; b++)
        reducer->buckets[b].pending = reducer->plan.start[b + 1] - reducer->plan.start[b];
    reducer->launched = 0;
    reducer->ready_count = 0;
    reducer->expecting = true;
    return 0;
}

void reducer_forward_done(Reducer *reducer) {
    reducer->forward_end = clock_ns();
}

// Starts every bucket that is full and has none before it that is not. So all ranks start them in
// the same order, though gradients may become ready in different orders.
static void launch_full_buckets(Reducer *reducer) {
    while (reducer->launched < reducer->plan.bucket_count) {
        Bucket *bucket = &reducer->buckets[reducer->launched];
        if (bucket->pending > 0 || reducer->error.status != STATUS_OK) return;
        if (reducer->launched == 0) reducer->first_launch = clock_ns();
        bucket->work = pg_start(
            reducer->group, pg_all_reduce(bucket->begin, bucket->count, PG_F32, reducer->config.op),
            &reducer->error);
        if (bucket->work) reducer->launched++;
    }
}

// Tensor.on_ready: this parameter's gradient is complete. A hook cannot fail, so an error is kept
// for reducer_finish.
static void gradient_ready(void *context, Tensor *tensor) {
    (void)tensor;
    Gradient *gradient = context;
    Reducer *reducer = gradient->reducer;
    if (!reducer->expecting) return; // the forward did not go through the wrapper
    if (gradient->ready) {
        error_set(&reducer->error, STATUS_FAILED,
                  "Expected to mark a variable ready only once. Parameter at index %zu with name "
                  "%s has been marked as ready twice: it was part of two backwards since "
                  "the gradients were last reduced",
                  gradient->index, reducer->parameters.items[gradient->index].name);
        return;
    }
    gradient->ready = true;
    reducer->ready_order[reducer->ready_count++] = (int64_t)gradient->index;
    reducer->buckets[gradient->bucket].pending--;
    if (reducer->config.overlap) launch_full_buckets(reducer);
}

int reducer_finish(Reducer *reducer, Profile *profile, Error *err) {
    CHECK(reducer->expecting || reducer->error.status != STATUS_OK,
          "reducer_finish without reducer_prepare");
    reducer->backward_end = clock_ns();
    Phase phase = profile_enter(profile, PHASE_EXPOSED);
    if (reducer->ready_count < reducer->parameters.count) fail_unfinished(reducer);
    launch_full_buckets(reducer);
    for (size_t b = 0; b < reducer->launched; b++) // to the last one, also after an error
        work_wait(reducer->buckets[b].work, NULL, &reducer->last_done, &reducer->error);
    reducer->launched = 0;
    reducer->expecting = false;
    reducer->finished_one = reducer->error.status == STATUS_OK;
    reducer->finish_end = clock_ns();
    profile_leave(profile, phase);
    return report(reducer, err);
}

// ---- opening, closing, looking --------------------------------------------------------------

// The module's parameters that require a gradient.
static NamedTensors wanted_parameters(Module *module) {
    NamedTensors tensors = module_tensors(module, MODULE_PARAMETERS);
    size_t kept = 0;
    for (size_t i = 0; i < tensors.count; i++)
        if (tensors.items[i].tensor->requires_grad) tensors.items[kept++] = tensors.items[i];
    tensors.count = kept;
    return tensors;
}

static int check_devices(const NamedTensors *parameters, Error *err) {
    if (parameters->count == 0)
        return error_set(err, STATUS_FAILED,
                         "DistributedDataParallel is not needed when a module doesn't have any "
                         "parameter that requires a gradient.");
    const Device *device = parameters->items[0].tensor->device;
    for (size_t i = 1; i < parameters->count; i++)
        if (parameters->items[i].tensor->device != device)
            return error_set(err, STATUS_FAILED,
                             "DistributedDataParallel needs all parameters on one device: %s is on "
                             "%s, %s is on %s",
                             parameters->items[0].name, device->name, parameters->items[i].name,
                             parameters->items[i].tensor->device->name);
    return 0;
}

static Reducer *fill_reducer(NamedTensors parameters, ProcessGroup *group,
                             const ReducerConfig *config) {
    Reducer *reducer = memory_zalloc(sizeof *reducer);
    reducer->group = group;
    reducer->config = *config;
    reducer->device = parameters.items[0].tensor->device;
    reducer->parameters = parameters;
    reducer->gradients = memory_zalloc(parameters.count * sizeof *reducer->gradients);
    reducer->ready_order = memory_zalloc(parameters.count * sizeof *reducer->ready_order);
    for (size_t i = 0; i < parameters.count; i++) {
        Gradient *gradient = &reducer->gradients[i];
        *gradient = (Gradient){.reducer = reducer, .index = i};
        parameters.items[i].tensor->on_ready = gradient_ready;
        parameters.items[i].tensor->on_ready_context = gradient;
        reducer->slab_floats += slice_floats(parameters.items[i].tensor);
    }
    return reducer;
}

Reducer *reducer_create(Module *module, ProcessGroup *group, const ReducerConfig *config,
                        Error *err) {
    NamedTensors parameters = wanted_parameters(module);
    if (check_devices(&parameters, err)) {
        named_tensors_free(&parameters);
        return NULL;
    }
    module_release_grads(module);
    Reducer *reducer = fill_reducer(parameters, group, config);
    size_t bytes = reducer->slab_floats * sizeof(float);
    device_count(reducer->device, bytes);
    reducer->slab = pg_shared_alloc(group, bytes, err);
    if (!reducer->slab) {
        reducer_close(reducer);
        return NULL;
    }
    reducer->plan = assign(reducer, (size_t[]){BUCKET_UNLIMITED}, 1, NULL);
    buckets_reverse(&reducer->plan); // PyTorch's rule; nothing to do while it is one bucket
    lay_out(reducer, NULL);
    return reducer;
}

// The slab is left to pg_close: giving it back here would take all ranks, and one that has failed
// may be alone.
void reducer_close(Reducer *reducer) {
    if (!reducer) return;
    for (size_t i = 0; i < reducer->parameters.count; i++) {
        Tensor *tensor = tensor_of(reducer, i);
        tensor->grad = NULL;
        tensor->has_grad = false;
        tensor->on_ready = NULL;
        tensor->on_ready_context = NULL;
    }
    device_uncount(reducer->device, reducer->slab_floats * sizeof(float));
    buckets_free(&reducer->plan);
    named_tensors_free(&reducer->parameters);
    free(reducer->buckets);
    free(reducer->gradients);
    free(reducer->ready_order);
    free(reducer);
}

ReducerTimes reducer_times(const Reducer *reducer) {
    uint64_t begin = reducer->first_launch, end = reducer->backward_end;
    return (ReducerTimes){.forward_compute = reducer->forward_end - reducer->forward_start,
                          .backward_compute = end - reducer->forward_end,
                          .backward_comm = reducer->last_done - begin,
                          .overlap = begin < end ? end - begin : 0,
                          .exposed = reducer->finish_end - end};
}

const BucketPlan *reducer_plan(const Reducer *reducer) {
    return &reducer->plan;
}
bool reducer_rebuilt(const Reducer *reducer) {
    return reducer->rebuilt;
}
