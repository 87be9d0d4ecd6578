/* zero_optimizer.c: see zero_optimizer.h.
 *
 * Two objects: a communication hook, which owns the reduction of buckets, and an OptimizerSharding,
 * which owns the step. They share each parameter's slice of its bucket. A bucket is cut at cache
 * lines into W equal parts; the last rank also owns the remainder. A part may begin and end within
 * parameters.
 *
 * Invariant: between two steps all ranks' weights are equal; a rank accesses another rank's weights
 * only between the two barriers of share_step.
 */
#include "ddp/features/zero_optimizer.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/features.h"
#include "ddp/group/reduce.h"
#include "ddp/reducer.h"

// BLOCK: floats that more than two ranks sum, step and write at a time, so that the sum stays in
// the first-level cache. STATES: the maximum number of states for each weight.
enum { BLOCK = 1024, STATES = 2 };

static const char NAME[] = "zero_optimizer";

typedef enum Way { UNDECIDED, FUSED, SCATTERED, WHOLE } Way;

// One parameter of the optimizer.
typedef struct ZeroParameter {
    Tensor *tensor;
    float *slice;             // its gradient in the bucket; NULL: not reduced, every rank steps it
    const GradBucket *bucket; // the reducer's
} ZeroParameter;

typedef struct Zero {
    ProcessGroup *group;
    Reducer *reducer;
    OptimizerSharding sharding;
    OptimizerPart *parts;      // [parameter_count], the elements that this rank owns
    bool *undivided;           // [parameter_count], not reduced
    ZeroParameter *parameters; // [parameter_count], in the optimizer's order
    size_t parameter_count;
    Way way;
    bool scattered; // the gradients are this rank's parts of sums, which no step has used yet
    ReduceOp op;    // of the gradients
    // The reducer's slab of gradients, and the weights at the same offsets. The group owns both;
    // the devices count them.
    float *gradients, *weights;
    // Rank r's slabs; all NULL if the ranks do not address each other's memory.
    float **peer_weights, **peer_gradients; // [W]
    void **sources;                         // [W], scratch: operands of the sum
} Zero;

// ---- ownership of elements --------------------------------------------------------------------

// Floats of a bucket that each rank but the last owns.
static size_t share_of(const Zero *zero, const GradBucket *bucket) {
    return reduce_slice_count(PG_F32, bucket->count, pg_size(zero->group));
}

// The elements of a parameter that rank `rank` owns.
static OptimizerPart part_of(const Zero *zero, const ZeroParameter *parameter, int rank) {
    size_t count = tensor_count(parameter->tensor);
    if (!parameter->slice) return (OptimizerPart){0, count};
    const ReduceSlice slice =
        reduce_slice_of(PG_F32, parameter->bucket->count, pg_size(zero->group), rank);
    size_t begin = slice.first, end = begin + slice.count;
    // Positions in the bucket become positions in the parameter.
    const size_t offset = (size_t)(parameter->slice - parameter->bucket->buffer);
    begin = begin > offset ? begin - offset : 0;
    end = end > offset ? end - offset : 0;
    if (end > count) end = count;
    return begin < end ? (OptimizerPart){begin, end - begin} : (OptimizerPart){0, 0};
}

// The reducer's parameters are a subsequence of the model's.
static void locate_parameters(Zero *zero, Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    const GradientSlab *slab = &zero->reducer->slab;
    zero->parameter_count = parameters.count;
    zero->parameters = memory_zalloc(parameters.count * sizeof *zero->parameters);
    zero->sharding.parts = zero->parts = memory_zalloc(parameters.count * sizeof *zero->parts);
    zero->sharding.undivided = zero->undivided =
        memory_zalloc(parameters.count * sizeof *zero->undivided);
    for (size_t i = 0, next = 0; i < parameters.count; i++) {
        ZeroParameter *parameter = &zero->parameters[i];
        parameter->tensor = parameters.items[i].tensor;
        if (next < slab->parameters.count &&
            slab->parameters.items[next].tensor == parameter->tensor) {
            parameter->slice = slab->slices[next].data;
            parameter->bucket = &slab->buckets[slab->slices[next++].bucket];
        }
        zero->parts[i] = part_of(zero, parameter, pg_rank(zero->group));
        zero->undivided[i] = !parameter->slice;
    }
    named_tensors_free(&parameters);
}

// ---- weights at the gradients' offsets ----------------------------------------------------------

static float *weight_of(const Zero *zero, const float *slice) {
    return zero->weights + (slice - zero->gradients);
}

static void copy_tensor(const Tensor *tensor, void *to, const void *from) {
    device_copy(tensor->device, to, tensor->device, from, tensor_bytes(tensor));
}

// Moves the weights into the slab and frees the module's own memory.
static int move_weights(Zero *zero, Error *err) {
    const GradientSlab *slab = &zero->reducer->slab;
    zero->gradients = slab->memory;
    zero->weights = pg_shared_alloc(zero->group, slab->floats * sizeof *zero->weights, err);
    if (!zero->weights) return -1;
    for (size_t i = 0; i < zero->parameter_count; i++) {
        const ZeroParameter *parameter = &zero->parameters[i];
        Tensor *tensor = parameter->tensor;
        if (!parameter->slice) continue;
        float *weight = weight_of(zero, parameter->slice);
        copy_tensor(tensor, weight, tensor->data);
        device_free(tensor->device, tensor->data, tensor_bytes(tensor));
        device_count(tensor->device, memory_whole_lines(tensor_bytes(tensor)));
        tensor->data = weight;
    }
    return 0;
}

// After a failed step another rank may still write here: these weights are not read.
static void return_weights(Zero *zero) {
    const bool whole = zero->reducer->error.status == STATUS_OK;
    for (size_t i = 0; i < zero->parameter_count && zero->weights; i++) {
        Tensor *tensor = zero->parameters[i].tensor;
        if (!zero->parameters[i].slice) continue;
        device_uncount(tensor->device, memory_whole_lines(tensor_bytes(tensor)));
        void *own = device_alloc(tensor->device, tensor_bytes(tensor));
        if (whole) copy_tensor(tensor, own, tensor->data);
        tensor->data = own;
    }
}

static float **reach_peers(const Zero *zero, const float *mine) {
    float **peers = memory_zalloc((size_t)pg_size(zero->group) * sizeof *peers);
    for (int r = 0; r < pg_size(zero->group); r++) peers[r] = pg_peer_memory(zero->group, mine, r);
    return peers;
}

// ---- gradients --------------------------------------------------------------------------------

static Way choose_way(const Zero *zero) {
    if (zero->sharding.whole_gradients || zero->reducer->policy.name != NAME) return WHOLE;
    return zero->peer_weights && !zero->sharding.own_gradients ? FUSED : SCATTERED;
}

static int start_bucket(void *state, GradBucket *bucket, Error *err) {
    Zero *zero = state;
    size_t share = share_of(zero, bucket);
    zero->op = bucket->op;
    bucket->work = NULL;
    if (zero->way == UNDECIDED) zero->way = choose_way(zero);
    zero->sharding.has_whole = zero->way == WHOLE;
    if (zero->way == FUSED || (zero->way == SCATTERED && share == 0)) return 0;
    float *mine = bucket->buffer + (size_t)pg_rank(zero->group) * share;
    Collective sum = zero->way == WHOLE
                         ? grad_bucket_all_reduce(bucket, PG_F32, bucket->op)
                         : pg_reduce_scatter(bucket->buffer, mine, share, PG_F32, bucket->op);
    bucket->work = pg_start(zero->group, pg_of_bucket(sum, bucket->index), err);
    return bucket->work ? 0 : -1;
}

static int finish_bucket(void *state, GradBucket *bucket, Error *err) {
    Zero *zero = state;
    zero->scattered = zero->way == SCATTERED;
    if (bucket->work && pg_work_wait(bucket->work, NULL, &bucket->done_ns, err) != 0) return -1;
    // The remainder, which the last rank owns: less than W cache lines.
    const int ranks = pg_size(zero->group);
    size_t even = share_of(zero, bucket) * (size_t)ranks, rest = bucket->count - even;
    if (zero->way != SCATTERED || rest == 0) return 0;
    return pg_run(zero->group,
                  pg_reduce(bucket->buffer + even, rest, PG_F32, bucket->op, ranks - 1), err);
}

// ReadyPolicy.forward_begins. Gradients added to scattered sums would be averaged with the
// other ranks' local gradients of this rank's part, which are no sums.
static void forward_begins(void *state) {
    const Zero *zero = state;
    const GradientSlab *slab = &zero->reducer->slab;
    if (!zero->scattered || pg_size(zero->group) == 1) return;
    for (size_t i = 0; i < slab->parameters.count; i++)
        if (slab->parameters.items[i].tensor->has_grad) {
            error_set(&zero->reducer->error, STATUS_FAILED,
                      "%s: the gradient of %s is divided over the ranks since the last backward, "
                      "so a further backward cannot add to it -- call optimizer_step or "
                      "module_zero_grad before the forward, or accumulate under ddp_no_sync_begin",
                      NAME, slab->parameters.items[i].name);
            return;
        }
}

// ---- the step, in shared memory ---------------------------------------------------------------

// Sums the gradients at offset `at` of all ranks but the last, in rank order. Returns the sum
// [count]; of a single rank, its gradients in place.
static const float *add_up(const Zero *zero, size_t at, float *sum, size_t count) {
    void *target = sum;
    const int ranks = pg_size(zero->group) - 1;
    for (int r = 0; r < ranks; r++) zero->sources[r] = zero->peer_gradients[r] + at;
    if (ranks == 1) return zero->sources[0];
    reduce_in_rank_order(PG_F32, PG_SUM, zero->sources, ranks, &target, 1, count);
    return sum;
}

// Sums and steps elements of this rank's part of parameter i, and writes them to all ranks. The
// step's kernel adds the last rank's gradients and writes the next rank's weights.
static void step_elements(const Zero *zero, size_t i, OptimizerPart elements) {
    _Alignas(MEMORY_ALIGNMENT) float sum[BLOCK];
    const ZeroParameter *parameter = &zero->parameters[i];
    const int world = pg_size(zero->group), me = pg_rank(zero->group), next = (me + 1) % world;
    const float *gradient = parameter->tensor->grad + elements.first;
    const float *weight = tensor_f32(parameter->tensor) + elements.first;
    const size_t at = (size_t)(weight - zero->weights);
    OptimizerPeer peer = {.weight = zero->peer_weights[next] + at};
    if (zero->way == FUSED) {
        gradient = add_up(zero, at, sum, elements.count);
        peer.gradient = zero->peer_gradients[world - 1] + at;
        peer.factor = zero->op == PG_AVG ? (float)(1.0 / world) : 1.0f;
    }
    optimizer_apply_to(zero->sharding.optimizer, i, elements, gradient, &peer);
    for (int r = 0; r < world; r++)
        if (r != me && r != next)
            memcpy(zero->peer_weights[r] + at, weight, elements.count * sizeof *weight);
}

static void step_part(const Zero *zero, size_t i) {
    const OptimizerPart part = zero->parts[i];
    const int world = pg_size(zero->group);
    if (!zero->parameters[i].slice || world == 1) { // owned by this rank alone
        optimizer_apply_to(zero->sharding.optimizer, i, part,
                           zero->parameters[i].tensor->grad + part.first, NULL);
        return;
    }
    const size_t end = part.first + part.count, block = world == 2 ? part.count : BLOCK;
    for (size_t first = part.first; first < end; first += block)
        step_elements(zero, i, (OptimizerPart){first, end - first < block ? end - first : block});
    size_t crossings = zero->way == FUSED ? 2 : 1; // gradients in, weights out
    pg_count_moved(zero->group, crossings * part.count * sizeof(float) * (size_t)(world - 1));
}

static void share_step(Zero *zero, Error *err) {
    // After all ranks' backward: no rank reads weights or writes gradients.
    if (pg_run(zero->group, pg_barrier(), err) != 0) return;
    for (size_t i = 0; i < zero->parameter_count; i++)
        if (zero->parameters[i].tensor->has_grad) step_part(zero, i);
    (void)pg_run(zero->group, pg_barrier(), err); // all weights are written
}

// ---- the step, by collectives -----------------------------------------------------------------

// Gathers a bucket's weights in place: each rank's part, then the last rank's remainder.
static int gather_bucket(const Zero *zero, const GradBucket *bucket, Error *err) {
    float *weights = weight_of(zero, bucket->buffer);
    const int last = pg_size(zero->group) - 1;
    size_t share = share_of(zero, bucket), even = share * (size_t)(last + 1);
    const float *mine = weights + (size_t)pg_rank(zero->group) * share;
    const Collective parts = pg_all_gather(mine, weights, share, PG_F32);
    const Collective rest = pg_broadcast(weights + even, bucket->count - even, PG_F32, last);
    if (parts.count > 0 && pg_run(zero->group, parts, err) != 0) return -1;
    return rest.count > 0 ? pg_run(zero->group, rest, err) : 0;
}

static void step_and_gather(Zero *zero, Error *err) {
    const GradientSlab *slab = &zero->reducer->slab;
    optimizer_apply(zero->sharding.optimizer);
    for (size_t b = 0; b < slab->plan.bucket_count; b++)
        if (gather_bucket(zero, &slab->buckets[b], err) != 0) return;
}

// OptimizerSharding.apply. It has no status: the next forward returns the error.
static void apply(void *state) {
    Zero *zero = state;
    Error *err = &zero->reducer->error;
    if (err->status != STATUS_OK) return;
    zero->scattered = false;
    if (zero->peer_weights)
        share_step(zero, err);
    else
        step_and_gather(zero, err);
    for (size_t i = 0; i < zero->parameter_count && zero->way != WHOLE; i++)
        zero->parameters[i].tensor->has_grad = false;
}

// OptimizerSharding.add_up
static void add_up_ranks(void *state, int64_t *values, size_t count) {
    const Zero *zero = state;
    Error *err = &zero->reducer->error;
    if (err->status == STATUS_OK)
        (void)pg_run(zero->group, pg_all_reduce(values, count, PG_I64, PG_SUM), err);
}

// ---- checkpoints ------------------------------------------------------------------------------

// Collects state s of parameter i on rank 0: `whole` [the parameter's elements] there, on another
// rank [its part]. Every part is sent by its owner; elements that all ranks step come from rank 0.
static int collect_state(const Zero *zero, int s, size_t i, float *whole, Error *err) {
    const ZeroParameter *parameter = &zero->parameters[i];
    const OptimizerPart mine = zero->parts[i];
    const bool root = pg_rank(zero->group) == 0;
    if (!root && !parameter->slice) return 0;
    device_copy(NULL, root ? whole + mine.first : whole, parameter->tensor->device,
                zero->sharding.optimizer->state[s][i], mine.count * sizeof *whole);
    if (!root)
        return mine.count > 0 ? pg_run(zero->group, pg_send(whole, mine.count, PG_F32, 0), err) : 0;
    for (int r = 1; parameter->slice && r < pg_size(zero->group); r++) {
        const OptimizerPart part = part_of(zero, parameter, r);
        const Collective receive = pg_recv(whole + part.first, part.count, PG_F32, r);
        if (part.count > 0 && pg_run(zero->group, receive, err) != 0) return -1;
    }
    return 0;
}

static int save(void *state, SafeTensors *content, Error *err) {
    const Zero *zero = state;
    const Optimizer *optimizer = zero->sharding.optimizer;
    const bool root = pg_rank(zero->group) == 0;
    int status = 0;
    size_t floats = 0; // on other ranks: memory for the largest part
    for (size_t i = 0; i < zero->parameter_count; i++) {
        if (root)
            floats += STATES * tensor_count(zero->parameters[i].tensor);
        else if (zero->parts[i].count > floats)
            floats = zero->parts[i].count;
    }
    float *next = memory_zalloc(floats * sizeof *next);
    content->buffer = next;
    content->entries = memory_zalloc(STATES * zero->parameter_count * sizeof *content->entries);
    for (int s = 0; s < STATES && optimizer_state_name(optimizer, s); s++)
        for (size_t i = 0; i < zero->parameter_count && status == 0; i++) {
            status = collect_state(zero, s, i, next, err);
            if (!root) continue;
            SafeEntry *entry = &content->entries[content->count++];
            *entry = (SafeEntry){.bytes = tensor_bytes(zero->parameters[i].tensor), .data = next};
            snprintf(entry->name, sizeof entry->name, "optimizer/%s.%s",
                     optimizer->parameters.items[i].name, optimizer_state_name(optimizer, s));
            next += tensor_count(zero->parameters[i].tensor);
        }
    if (!root || status != 0) safetensors_free(content);
    return status;
}

// Nothing to do: each rank's part is loaded with the optimizer.
static int load(void *state, const char *path, const SafeTensors *content, RunLog *log,
                Error *err) {
    (void)state, (void)path, (void)content, (void)log, (void)err;
    return 0;
}

// ---- opening and closing ----------------------------------------------------------------------

static void close_zero(void *state) {
    Zero *zero = state;
    return_weights(zero);
    free(zero->peer_weights);
    free(zero->peer_gradients);
    free(zero->sources);
    free(zero->parameters);
    free(zero->parts);
    free(zero->undivided);
    free(zero);
}

int ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err) {
    Reducer *reducer = ddp_reducer(wrapper);
    if (reducer->policy.name && !reducer->policy.permanent_buckets)
        return error_set(err, STATUS_FAILED, "%s needs buckets that stay, and %s rebuilds them",
                         NAME, reducer->policy.name);
    Zero *zero = memory_zalloc(sizeof *zero);
    *zero = (Zero){.group = ddp_group(wrapper), .reducer = reducer};
    zero->sharding = (OptimizerSharding){.state = zero, .apply = apply, .add_up = add_up_ranks};
    const CommHook hook = {.name = NAME,
                           .state = zero,
                           .sharding = &zero->sharding,
                           .start = start_bucket,
                           .finish = finish_bucket,
                           .close = close_zero,
                           .save = save,
                           .load = load};
    if (reducer_set_hook(reducer, hook, err) != 0) return -1;
    if (!reducer->policy.name)
        reducer_set_policy(reducer, (ReadyPolicy){.name = NAME,
                                                  .state = zero,
                                                  .permanent_buckets = true,
                                                  .forward_begins = forward_begins});
    locate_parameters(zero, ddp_module(wrapper));
    if (move_weights(zero, err) != 0) return -1;
    if (config->apart || !pg_peer_memory(zero->group, zero->weights, 0)) return 0;
    zero->peer_weights = reach_peers(zero, zero->weights);
    zero->peer_gradients = reach_peers(zero, zero->gradients);
    zero->sources = memory_zalloc((size_t)pg_size(zero->group) * sizeof *zero->sources);
    return 0;
}

OptimizerSharding *zero_optimizer_sharding(Module *wrapper) {
    return ddp_reducer(wrapper)->hook.sharding;
}

// ---- the command line -------------------------------------------------------------------------

static int check(const Options *options, Error *err) {
    static const char *const others[][2] = {
        {"static-graph", "rebuilds the buckets that the optimizer's state belongs to"},
        {"no-gradient-as-bucket-view", "keeps the gradients outside of the sharded memory"},
        {"cuda-graph", "replays a step without its collectives of weights"},
    };
    if (options_given(options, "comm-hook") && !options_is(options, "comm-hook", "none"))
        return error_set(err, STATUS_USAGE,
                         "--zero-optimizer cannot be combined with --comm-hook, which reduces the "
                         "buckets in its own way");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(options, others[i][0]))
            return error_set(err, STATUS_USAGE,
                             "--zero-optimizer cannot be combined with --%s, which %s",
                             others[i][0], others[i][1]);
    return 0;
}

// The first forward returns an error, which the reducer keeps.
static void add_to(Module *wrapper) {
    (void)ddp_zero_optimizer(wrapper, &(ZeroConfig){0}, &ddp_reducer(wrapper)->error);
}

const DdpFeature zero_optimizer_feature = {
    .flag = "zero-optimizer",
    .help = "divide the optimizer's state and step over the ranks (ZeRO-1)",
    .check = check,
    .add_to = add_to};
