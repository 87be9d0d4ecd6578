/* test_collective_failures.c: short trainings with each feature, in which the group breaks at each
 * collective of rank 1 in turn. Every rank must return the failure with its reason.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/rank_failures.h"

#include "tests/rigs/ddp_toy.h"

#include "common/base/memory.h"
#include "common/nn/clip.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/features/join_ddp.h"
#include "ddp/features/post_local_sgd.h"
#include "ddp/features/powersgd_hook.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/features/used_map.h"
#include "ddp/features/zero_optimizer.h"
#include "ddp/fsdp/fsdp_internal.h"
#include "ddp/fsdp/fully_shard.h"
#include "ddp/reducer.h"

static const char REASON[] = "the cable is pulled";
enum { STEPS = 3, COLLECTIVES_MAX = 200 };

// ---- the collective that fails ------------------------------------------------------------------

typedef struct Pull { // of this thread's rank
    ProcessGroup *world;
    int left;   // collectives until the group breaks; 0: broken already, or never
    bool after; // breaks after the collective was enqueued, not before
    bool ran;   // broke before a pg_run, whose caller must return the error
} Pull;

static _Thread_local Pull pull;

int __real_pg_run(ProcessGroup *group, Collective collective, Error *err);
int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err);
PgWork *__real_pg_start(ProcessGroup *group, Collective collective, Error *err);
PgWork *__wrap_pg_start(ProcessGroup *group, Collective collective, Error *err);

static void pull_now(ProcessGroup *group, bool after) {
    Error cause = {0};
    if (pull.left == 0 || pull.after != after || --pull.left > 0) return;
    error_set(&cause, STATUS_FAILED, "%s", REASON);
    pg_abort(group, &cause);
    if (group != pull.world) pg_abort(pull.world, &cause); // a feature's subgroup broke
}

int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err) {
    const int left = pull.left;
    pull_now(group, false);
    pull.ran = pull.ran || (left == 1 && pull.left == 0);
    int status = __real_pg_run(group, collective, err);
    pull_now(group, true);
    return status;
}

// Send and receive buffers overlap in place only: MPI forbids other overlaps.
static void expect_in_place(const ProcessGroup *group, const Collective *c) {
    const char *send = c->send, *receive = c->receive;
    const size_t bytes = c->count * pg_type_bytes(c->type), at = (size_t)pg_rank(group) * bytes;
    const bool gathers = c->kind == PG_ALL_GATHER;
    if (!gathers && c->kind != PG_REDUCE_SCATTER) return;
    const char *piece = gathers ? send : receive, *pieces = gathers ? receive : send;
    const char *end = pieces + (size_t)pg_size(group) * bytes;
    CHECK(piece + bytes <= pieces || piece >= end || piece == pieces + at,
          "a piece is %td bytes into the pieces, not %zu", piece - pieces, at);
}

PgWork *__wrap_pg_start(ProcessGroup *group, Collective collective, Error *err) {
    expect_in_place(group, &collective);
    pull_now(group, false);
    PgWork *work = __real_pg_start(group, collective, err);
    pull_now(group, true);
    return work;
}

// ---- status -------------------------------------------------------------------------------------

static _Thread_local CommHook checked; // of this rank

// A failed call must also return -1: callers rely on the status, not on the error.
static int check_status(int status, const Error *before, const Error *err) {
    const bool failed = err->status != before->status;
    CHECK(status == (failed ? -1 : 0) || before->status != STATUS_OK, "returned %d: %s", status,
          err->message);
    return status;
}

#define RETURNS_STATUS(function, Object)                                   \
    int __real_##function(Object *object, Error *err);                     \
    int __wrap_##function(Object *object, Error *err);                     \
    int __wrap_##function(Object *object, Error *err) {                    \
        const Error before = *err;                                         \
        return check_status(__real_##function(object, err), &before, err); \
    }
#define RETURNS_STATUS_OF(function, Object, Argument)                                \
    int __real_##function(Object *object, Argument argument, Error *err);            \
    int __wrap_##function(Object *object, Argument argument, Error *err);            \
    int __wrap_##function(Object *object, Argument argument, Error *err) {           \
        const Error before = *err;                                                   \
        return check_status(__real_##function(object, argument, err), &before, err); \
    }

RETURNS_STATUS(unit_gather, FsdpUnit)
RETURNS_STATUS(unit_start_reduce, FsdpUnit)
RETURNS_STATUS(reduce_finish, Fsdp)
RETURNS_STATUS(fsdp_sync_buffers, Module)
RETURNS_STATUS(used_map_start, UsedMap)
RETURNS_STATUS(used_map_wait, UsedMap)
RETURNS_STATUS(join_end, Join)
RETURNS_STATUS_OF(join_notify, Join, const void *)
RETURNS_STATUS_OF(reducer_prepare, Reducer, bool)
RETURNS_STATUS_OF(reducer_finish, Reducer, Profile *)
RETURNS_STATUS_OF(ddp_finish_backward, Module, Profile *)
RETURNS_STATUS_OF(fsdp_finish_backward, Module, Profile *)
RETURNS_STATUS_OF(sync_state_run, const SyncState, int)

static int checked_start(void *state, GradBucket *bucket, Error *err) {
    const Error before = *err;
    return check_status(checked.start(state, bucket, err), &before, err);
}

static int checked_finish(void *state, GradBucket *bucket, Error *err) {
    const Error before = *err;
    return check_status(checked.finish(state, bucket, err), &before, err);
}

static _Thread_local int (*mirror)(void *state, Error *err); // of this rank

static int checked_mirror(void *state, Error *err) {
    const Error before = *err;
    return check_status(mirror(state, err), &before, err);
}

static void check_hook(Reducer *reducer) {
    checked = reducer->hook;
    reducer->hook.start = checked_start;
    reducer->hook.finish = checked_finish;
}

// ---- a short training ---------------------------------------------------------------------------

typedef enum Feature {
    PLAIN,
    FIND_UNUSED,
    STATIC_GRAPH,
    HALVES,
    AROUND,
    POWER_SGD,
    POST_LOCAL_SGD,
    ZERO,
    ZERO_APART,
    ZERO_WHOLE,
    SYNC_BATCH_NORM,
    JOIN,
    JOIN_THROWS,
    FULLY_SHARD, // instead of DistributedDataParallel
    FULLY_SHARD_BLOCKING,
    FULLY_SHARD_EARLY, // the optimizer's step gathers, too
    FEATURES
} Feature;

typedef struct Case {
    Feature feature;
    int at; // number of the breaking collective on rank 1, from 1
    bool after;
} Case;

typedef struct Training {
    Rig rig;
    Feature feature;
    bool buffers; // broadcast_buffers
    PowerSgd *power;
    PostLocalSgd local;
    Optimizer *optimizer;
    GradClip *clip;
    Join *join;
    bool saves; // is saving the hook's state
} Training;

static bool is_zero(Feature feature) {
    return feature >= ZERO && feature <= ZERO_WHOLE;
}

static void halve(void *context, GradBucket *bucket) {
    (void)context;
    device_kernels(bucket->device)->elementwise->scale(bucket->buffer, 0.5f, bucket->count);
}

static int add_hook(Training *t, Error *err) {
    Rig *rig = &t->rig;
    CommHook hook = {.name = NULL};
    const PowerSgdConfig powersgd = {1, 2, 0.01, true, true, 0};
    switch (t->feature) {
    case HALVES:
        hook = comm_hook_compress(rig->group, PG_F16);
        break;
    case AROUND:
        hook =
            comm_hook_then(comm_hook_round(comm_hook_all_reduce(rig->group), PG_BF16), halve, NULL);
        break;
    case POWER_SGD:
        t->power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, err);
        hook = power_sgd_hook(t->power);
        break;
    case POST_LOCAL_SGD:
        t->local = (PostLocalSgd){.group = rig->group, .start_step = 1};
        hook = post_local_sgd_hook(&t->local);
        break;
    default:
        return is_zero(t->feature)
                   ? ddp_zero_optimizer(rig->wrapper,
                                        &(ZeroConfig){.apart = t->feature == ZERO_APART}, err)
                   : 0;
    }
    return ddp_register_comm_hook(rig->wrapper, hook, err);
}

static int open_training(Training *t, Error *err) {
    Rig *rig = &t->rig;
    rig->model = test_model(t->feature == FIND_UNUSED ? "branches" : "mlp", 3, rig->device);
    if (t->feature != ZERO_WHOLE) // with buffers, and parameters that "branches" does not use
        module_add(rig->model, "bn", layer_batch_norm(rig->device, CLASSES));
    if (t->feature == SYNC_BATCH_NORM && !sync_batch_norm_convert(rig->model, rig->group, err))
        return -1;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.001;
    config.broadcast_buffers = t->buffers;
    rig->wrapper = distributed_data_parallel(rig->model, rig->group, &config, err);
    if (!rig->wrapper) return -1;
    if (t->feature == STATIC_GRAPH) ddp_set_static_graph(rig->wrapper);
    if (t->feature == FIND_UNUSED) ddp_find_unused_parameters(rig->wrapper);
    if (add_hook(t, err) != 0) return -1;
    OptimizerConfig sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.9};
    if (is_zero(t->feature)) {
        sgd.sharding = zero_optimizer_sharding(rig->wrapper);
        sgd.sharding->whole_gradients = t->feature == ZERO_WHOLE;
    }
    t->optimizer = optimizer_create(rig->model, &sgd);
    if (t->feature != JOIN && t->feature != JOIN_THROWS) {
        check_hook(ddp_reducer(rig->wrapper));
        return 0;
    }
    const JoinConfig join = {.throw_on_early_termination = t->feature == JOIN_THROWS};
    Joinable joinable = ddp_joinable(rig->wrapper);
    mirror = joinable.mirror;
    joinable.mirror = checked_mirror;
    t->join = join_open(&joinable, 1, &join, err);
    return t->join ? 0 : -1;
}

// Runs the collectives of a job after training: saves the hook's state, elects the rank with
// inputs, broadcasts the module's state.
static int after_training(Training *t, Error *err) {
    const CommHook *hook = &ddp_reducer(t->rig.wrapper)->hook;
    ModelAverager averager = {.period = 1};
    SafeTensors content = {0};
    t->saves = hook->save != NULL;
    if (hook->save) {
        int status = hook->save(hook->state, &content, err);
        safetensors_free(&content);
        if (status != 0) return -1;
    }
    t->saves = false;
    if (t->feature == POST_LOCAL_SGD &&
        model_averager_step(&averager, t->rig.model, t->rig.group, err) != 0)
        return -1;
    const int elected = join_elect(t->rig.group, t->rig.rank == 1, err);
    if (elected < 0) return -1;
    return ddp_sync_module_states(t->rig.wrapper, elected, err);
}

// Also after a failure: a unit's tensors are shards if and only if its whole weights are not
// allocated.
static void expect_whole_or_shards(Rig *rig) {
    const Fsdp *fsdp = fsdp_of(rig->model);
    for (size_t i = 0; i < fsdp->count; i++)
        for (size_t k = 0; k < fsdp->units[i]->count; k++)
            EXPECT(!fsdp->units[i]->weights == !!fsdp->units[i]->parameters[k].tensor->shard);
}

// Held gradients are reduced after a step whose second gather uses the memory of reductions.
static int train_held(Training *t, Error *err) {
    Rig *rig = &t->rig;
    fsdp_set_requires_gradient_sync(rig->model, false);
    if (test_backward(rig->tape, rig->model, rig->rank, STEPS, 4, 4, err) != 0) return -1;
    if (fsdp_finish_backward(rig->model, NULL, err) != 0) return -1;
    optimizer_step(t->optimizer, 0.01);
    fsdp_set_requires_gradient_sync(rig->model, true);
    return fsdp_finish_backward(rig->model, NULL, err);
}

// The branches' order changes in each step, so that the prefetched unit is not the next one used.
static int train_sharded(Training *t, Error *err) {
    Rig *rig = &t->rig;
    FsdpConfig config = fsdp_config_default();
    config.overlap = t->feature != FULLY_SHARD_BLOCKING;
    config.unshard_in_step = t->feature == FULLY_SHARD_EARLY;
    rig->model = test_model("branches", 3, rig->device);
    module_add(rig->model, "bn", layer_batch_norm(rig->device, CLASSES)); // for its buffers
    for (int i = 0; i < 2; i++)
        if (fully_shard(rig->model->children[i], rig->group, &config, err) != 0) return -1;
    if (fully_shard(rig->model, rig->group, &config, err) != 0) return -1;
    const OptimizerConfig sgd = {
        .kind = OPTIMIZER_SGD, .momentum = 0.9, .sharding = fsdp_sharding(rig->model)};
    t->optimizer = optimizer_create(rig->model, &sgd);
    t->clip = grad_clip_open(&t->optimizer->parameters, sgd.sharding);
    for (int step = 0; step < STEPS; step++) {
        rig->model->config[0] = (size_t)step % 2;
        module_zero_grad(rig->model);
        const int failed = test_backward(rig->tape, rig->model, rig->rank, step, 4, 4, err);
        expect_whole_or_shards(rig);
        if (failed) return -1;
        if (fsdp_finish_backward(rig->model, NULL, err) != 0) return -1;
        grad_clip(t->clip, 0.1);
        optimizer_step(t->optimizer, 0.01);
    }
    if (t->feature == FULLY_SHARD_EARLY && train_held(t, err) != 0) return -1;
    SafeTensors content = {0};
    const int status = fsdp_collect(rig->model, FSDP_STATE, t->optimizer, &content, err);
    EXPECT((status == 0) == (err->status == STATUS_OK));
    safetensors_free(&content);
    return status == 0 ? fsdp_sync_buffers(rig->model, err) : -1;
}

static int train(Training *t, Error *err) {
    Rig *rig = &t->rig;
    if (t->feature >= FULLY_SHARD) return train_sharded(t, err);
    if (open_training(t, err) != 0) return -1;
    const int steps = STEPS + (t->join && rig->rank == 1);
    for (int step = 0; step < steps; step++) {
        module_zero_grad(rig->model);
        if (test_backward(rig->tape, rig->wrapper, rig->rank, step, 4, 4, err) != 0) return -1;
        EXPECT(!pull.ran);
        if (ddp_finish_backward(rig->wrapper, NULL, err) != 0) return -1;
        optimizer_step(t->optimizer, 0.01);
        if (ddp_reducer(rig->wrapper)->error.status) { // ZeRO's step returns no status
            *err = ddp_reducer(rig->wrapper)->error;
            return -1;
        }
    }
    if (t->join) {
        int status = join_end(t->join, err);
        t->join = NULL;
        if (status != 0) return -1;
    }
    return after_training(t, err);
}

static void close_training(Training *t) {
    if (t->join) join_abandon(t->join);
    grad_clip_close(t->clip);
    optimizer_close(t->optimizer);
    power_sgd_close(t->power);
    rig_close(&t->rig);
}

// outcome->number: 1 after a complete training; -1 if saving the hook's state failed.
static void train_until_it_breaks(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *c = argument;
    Training training = {rig_open(group, outcome), .feature = c->feature, .buffers = true};
    pull = (Pull){.world = group, .left = pg_rank(group) == 1 ? c->at : 0, .after = c->after};
    bool ended = train(&training, &outcome->error) == 0;
    const bool pulled = pg_rank(group) == 1 && pull.left == 0;
    pull = (Pull){0};
    if (ended && c->after && __real_pg_run(group, pg_barrier(), &outcome->error) != 0)
        ended = false;
    outcome->number = ended ? 1 : training.saves ? -1 : 0;
    if (pulled && ended)
        problem(outcome, "feature %d: collective %d failed, the training did not", (int)c->feature,
                c->at);
    // Join's error about an exhausted rank is expected.
    if (!ended && !strstr(outcome->error.message, REASON) &&
        !strstr(outcome->error.message, "exhausted"))
        problem(outcome, "feature %d, collective %d: failed for another reason: %s",
                (int)c->feature, c->at, outcome->error.message);
    close_training(&training);
}

static void break_each_collective(Feature feature, bool after) {
    for (int at = 1;; at++) {
        Outcome outcomes[RANKS_MAX];
        const Case c = {feature, at, after};
        if (at > COLLECTIVES_MAX) fail_msg("feature %d has no end", (int)feature);
        play_ranks(AS_THREADS, 2, 60, train_until_it_breaks, &c, outcomes);
        const bool ended = !strstr(outcomes[1].error.message, REASON);
        if (!ended) assert_true(outcomes[0].number < 1);
        if (!after && outcomes[1].number < 0) assert_int_equal(outcomes[0].number, -1);
        if (!ended) continue;
        assert_true(at > 2 * STEPS);
        return;
    }
}

static void every_failure_is_returned(void **state) {
    (void)state;
    for (int feature = 0; feature < FEATURES; feature++)
        break_each_collective((Feature)feature, false);
}

static void every_wait_returns_a_failure(void **state) {
    (void)state;
    for (int feature = 0; feature < FEATURES; feature++)
        break_each_collective((Feature)feature, true);
}

// ---- a collective that does not run -------------------------------------------------------------

// Rank 1 skips the last backward, so that no collective runs, and rank 0 breaks the group. After
// that rank 0 must not write to buckets in flight: in a real job its peers may still read them.
static void break_between_start_and_end(ProcessGroup *group, const void *argument,
                                        Outcome *outcome) {
    const Feature *feature = argument;
    Training training = {rig_open(group, outcome), .feature = *feature};
    Rig *rig = &training.rig;
    Error *err = &outcome->error;
    int status = open_training(&training, err);
    for (int step = 0; step < STEPS && status == 0; step++) {
        module_zero_grad(rig->model);
        status = test_backward(rig->tape, rig->wrapper, rig->rank, step, 4, 4, err);
        if (status == 0) status = ddp_finish_backward(rig->wrapper, NULL, err);
    }
    EXPECT(status == 0);
    if (rig->rank == 0 && status == 0) {
        const GradientSlab *slab = &ddp_reducer(rig->wrapper)->slab;
        const size_t bytes = slab->floats * sizeof(float);
        Error cause = {0};
        error_set(&cause, STATUS_FAILED, "%s", REASON);
        module_zero_grad(rig->model);
        // An unused parameter keeps an old gradient, as after a backward under no_sync.
        if (*feature == FIND_UNUSED)
            module_child(rig->model, "bn")->parameters[0].tensor.has_grad = true;
        EXPECT(test_backward(rig->tape, rig->wrapper, 0, STEPS, 4, 4, err) == 0);
        pg_abort(group, &cause);
        unsigned char *written = memset(slab->memory, 0x5a, bytes);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, err) != 0);
        for (size_t i = 0; i < bytes; i++) EXPECT(written[i] == 0x5a);
    }
    if (rig->rank == 0)
        sync_store(&outcome->failed, 1);
    else
        wait_for_failure(group, outcome);
    close_training(&training);
}

static void a_failed_bucket_is_left_alone(void **state) {
    (void)state;
    static const Feature features[] = {PLAIN,  FIND_UNUSED, STATIC_GRAPH, HALVES,
                                       AROUND, POWER_SGD,   ZERO_APART,   ZERO_WHOLE};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 2, 60, break_between_start_and_end, &features[i], outcomes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_bucket_is_left_alone),
        cmocka_unit_test(every_failure_is_returned),
        cmocka_unit_test(every_wait_returns_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
