/* test_reducer.c: what the Reducer does in a step, written to be read before reducer.c.
 *
 * Four parameters, a to d, of four elements each. There is no network: the test simulates the tape
 * and completes each gradient by a call (gradient_of). A hook around the plain all-reduce records
 * the events of the buckets:
 *
 *     "start 0 d c; start 1 b a; finish 0; finish 1; "
 *
 * Two ranks, as threads. Rank r's gradients are r + 1, so the average is 1.5 and the sum is 3.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/reducer.h"

enum { PARAMETERS = 4, A = 0, B, C, D };

#define TWO_A_BUCKET (2 * 16 / 1048576.0) // MiB: the size of two parameters

typedef struct Scene {
    Rig rig;
    Reducer *reducer;
    char diary[400];
    int fails_at; // the bucket whose start fails, or 100 + the bucket whose finish fails; -1: none
    bool silent;  // the failure sets no message
    bool untimed; // the hook does not report when a bucket completed
    Error err;
} Scene;

// ---- the diary --------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void note(Scene *scene, const char *format, ...) {
    size_t used = strlen(scene->diary);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(scene->diary + used, sizeof scene->diary - used, format, arguments);
    va_end(arguments);
}

static char name_of(const Scene *scene, const Tensor *tensor) {
    const NamedTensors *parameters = &scene->reducer->slab.parameters;
    for (size_t i = 0; i < parameters->count; i++)
        if (parameters->items[i].tensor == tensor) return (char)('a' + i);
    return '?';
}

static int cut_the_cable(const Scene *scene, Error *err) {
    return scene->silent ? -1 : error_set(err, STATUS_FAILED, "the cable is cut");
}

static int diary_start(void *state, GradBucket *bucket, Error *err) {
    Scene *scene = state;
    note(scene, "start %zu", bucket->index);
    for (size_t i = 0; i < bucket->parameter_count; i++)
        note(scene, " %c", name_of(scene, bucket->parameters[i]));
    note(scene, "; ");
    if (scene->fails_at == (int)bucket->index) return cut_the_cable(scene, err);
    bucket->work =
        pg_start(scene->rig.group, grad_bucket_all_reduce(bucket, PG_F32, bucket->op), err);
    return bucket->work ? 0 : -1;
}

static int diary_finish(void *state, GradBucket *bucket, Error *err) {
    Scene *scene = state;
    note(scene, "finish %zu; ", bucket->index);
    int status = pg_work_wait(bucket->work, NULL, scene->untimed ? NULL : &bucket->done_ns, err);
    return scene->fails_at == 100 + (int)bucket->index ? cut_the_cable(scene, err) : status;
}

// ---- the scene --------------------------------------------------------------------------------

static Scene *open_scene(ProcessGroup *group, Outcome *outcome, const ReducerConfig *config) {
    Scene *scene = memory_zalloc(sizeof *scene);
    scene->rig = rig_open(group, outcome);
    scene->fails_at = -1;
    Module *model = scene->rig.model = toy_model(scene->rig.device, PARAMETERS, 0);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    module_release_grads(model, &parameters); // the Reducer allocates them
    scene->reducer = reducer_create(parameters, group, config, &scene->err);
    CHECK(scene->reducer, "%s", scene->err.message);
    const CommHook hook = {
        .name = "diary", .state = scene, .start = diary_start, .finish = diary_finish};
    CHECK(reducer_set_hook(scene->reducer, hook, &scene->err) == 0, "%s", scene->err.message);
    return scene;
}

static void close_scene(Scene *scene) {
    reducer_close(scene->reducer);
    rig_close(&scene->rig);
    free(scene);
}

// Acts as the tape: adds the gradient and reports it as ready.
static void gradient_of(Scene *scene, int parameter) {
    Tensor *tensor = rig_parameter(&scene->rig, parameter);
    for (int i = 0; i < 4; i++)
        tensor->grad[i] = (tensor->has_grad ? tensor->grad[i] : 0) + (float)scene->rig.rank + 1;
    tensor->has_grad = true;
    assert_int_equal(tensor->on_ready(tensor->on_ready_context, tensor, NULL), 0);
}

// Runs a step in which the gradients become ready in this order: "dcba".
static int step(Scene *scene, const char *order) {
    scene->diary[0] = '\0';
    module_zero_grad(scene->rig.model);
    if (reducer_prepare(scene->reducer, true, &scene->err) != 0) return -1;
    for (; *order; order++) gradient_of(scene, *order - 'a');
    return reducer_finish(scene->reducer, NULL, &scene->err);
}

static bool diary_is(Scene *scene, const char *wanted) {
    if (strcmp(scene->diary, wanted) == 0) return true;
    problem(scene->rig.outcome, "the diary says '%s', not '%s'", scene->diary, wanted);
    return false;
}

#define EXPECT_IN(scene, condition) \
    do {                            \
        Rig *rig = &(scene)->rig;   \
        EXPECT(condition);          \
    } while (0)

static void play(RankBody *body) {
    play_ranks(AS_THREADS, 2, 60, body, NULL, NULL);
}

// ---- buckets ----------------------------------------------------------------------------------

// The first backward has one bucket, because registration order may differ from the order of
// backward. It records the ready order, which the second backward's buckets follow.
static void rebuild(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dbca") == 0 && !scene->reducer->rebuilt);
    diary_is(scene, "start 0 a b c d; finish 0; ");
    EXPECT_IN(scene, step(scene, "dbca") == 0 && scene->reducer->rebuilt);
    diary_is(scene, "start 0 d b; start 1 c a; finish 0; finish 1; ");
    // Buckets are rebuilt once: another order in later steps changes nothing.
    EXPECT_IN(scene, step(scene, "abcd") == 0);
    diary_is(scene, "start 0 d b; start 1 c a; finish 0; finish 1; ");
    close_scene(scene);
}

static void buckets_are_rebuilt_in_ready_order(void **state) {
    (void)state;
    play(rebuild);
}

// All ranks must have the same buckets: rank 0's ready order is broadcast.
static void rebuild_alike(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    const char *order = pg_rank(group) == 0 ? "dacb" : "bcad";
    EXPECT_IN(scene, step(scene, order) == 0 && step(scene, order) == 0);
    diary_is(scene, "start 0 d a; start 1 c b; finish 0; finish 1; ");
    for (int k = 0; k < PARAMETERS; k++) EXPECT_IN(scene, grad_is(rig, k, 1.5f));
    close_scene(scene);
}

static void the_order_is_rank_0s(void **state) {
    (void)state;
    play(rebuild_alike);
}

// A policy may require size-limited buckets in the first step. They are filled in registration
// order and numbered from the end, because backward usually completes the last layer first.
static void reversed(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    reducer_set_policy(scene->reducer, (ReadyPolicy){.permanent_buckets = true});
    for (int i = 0; i < 2; i++) {
        EXPECT_IN(scene, step(scene, "dcba") == 0 && !scene->reducer->rebuilt);
        diary_is(scene, "start 0 c d; start 1 a b; finish 0; finish 1; ");
    }
    close_scene(scene);
}

static void buckets_by_size_are_numbered_from_the_end(void **state) {
    (void)state;
    play(reversed);
}

// The caps are PyTorch's: in MiB, and 1 MiB for the first bucket if the cap is the default.
static void caps(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    static const struct {
        double cap;
        size_t first, other; // bytes
    } cases[] = {{-1, 1 << 20, 25 << 20}, {0, 0, 0}, {2, 2 << 20, 2 << 20}};
    for (int i = 0; i < 3; i++) {
        const ReducerConfig config = {.bucket_cap_mb = cases[i].cap, .op = PG_AVG};
        Scene *scene = open_scene(group, outcome, &config);
        EXPECT_IN(scene, step(scene, "dcba") == 0 && step(scene, "dcba") == 0);
        const BucketPlan *plan = &scene->reducer->slab.plan;
        EXPECT_IN(scene, plan->limits[0] == cases[i].first);
        for (size_t b = 1; b < plan->bucket_count; b++)
            EXPECT_IN(scene, plan->limits[b] == cases[i].other);
        EXPECT_IN(scene, plan->bucket_count == (cases[i].cap == 0 ? PARAMETERS : 1));
        close_scene(scene);
    }
}

// Five parameters of 0.6 MiB: the first bucket closes at 1 MiB with two of them; the second is
// below its cap of 25 MiB. Buckets are numbered from the end.
static void default_caps(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = -1, .op = PG_AVG};
    Rig self = rig_open(group, outcome), *rig = &self;
    const size_t count = 160000;
    rig->model = module_create("Large", NULL);
    for (char name[] = "a"; *name < 'f'; ++*name)
        module_add_parameter(module_add(rig->model, name, module_create("Part", NULL)), rig->device,
                             "p", 1, &count);
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    module_release_grads(rig->model, &parameters);
    Reducer *reducer = reducer_create(parameters, group, &config, &outcome->error);
    reducer_set_policy(reducer, (ReadyPolicy){.permanent_buckets = true});
    const BucketPlan *plan = &reducer->slab.plan;
    EXPECT(plan->bucket_count == 2 && plan->start[1] == 3 && plan->start[2] == 5);
    EXPECT(plan->limits[0] == 25 << 20 && plan->limits[1] == 1 << 20);
    reducer_close(reducer);
    rig_close(rig);
}

static void caps_are_in_mebibytes(void **state) {
    (void)state;
    play(caps);
    play(default_caps);
}

// Gradients are computed in the bucket and reduced in place. Each begins on a cache line; the
// padding between them is zero and is reduced too.
static void in_place(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    for (int i = 0; i < 2; i++) { // the initial and the rebuilt buckets
        EXPECT_IN(scene, step(scene, "dcba") == 0);
        for (int k = 0; k < PARAMETERS; k++) {
            float *slice = scene->reducer->slab.slices[(size_t)k].data;
            EXPECT_IN(scene, rig_parameter(rig, k)->grad == slice);
            EXPECT_IN(scene, (uintptr_t)slice % MEMORY_ALIGNMENT == 0);
            EXPECT_IN(scene, all_equal(slice, 4, 1.5f) && all_equal(slice + 4, 12, 0));
        }
    }
    close_scene(scene);
}

static void gradients_lie_in_their_buckets(void **state) {
    (void)state;
    play(in_place);
}

// ---- when a bucket is started -----------------------------------------------------------------

// A bucket is started as soon as its last gradient is ready, inside backward, but not before the
// buckets of lower number: all ranks must start buckets in the same order.
static void watch_backward(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool overlap = *(const bool *)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = overlap, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dcba") == 0);
    module_zero_grad(scene->rig.model);
    EXPECT_IN(scene, reducer_prepare(scene->reducer, true, &scene->err) == 0);
    scene->diary[0] = '\0';
    gradient_of(scene, B);
    gradient_of(scene, A); // bucket 1 is full but must wait for bucket 0
    diary_is(scene, "");
    gradient_of(scene, C);
    diary_is(scene, "");
    gradient_of(scene, D);
    diary_is(scene, overlap ? "start 0 d c; start 1 b a; " : "");
    EXPECT_IN(scene, reducer_finish(scene->reducer, NULL, &scene->err) == 0);
    diary_is(scene, "start 0 d c; start 1 b a; finish 0; finish 1; ");
    for (int k = 0; k < PARAMETERS; k++) EXPECT_IN(scene, grad_is(rig, k, 1.5f));
    close_scene(scene);
}

static void buckets_are_sent_in_order_inside_backward(void **state) {
    (void)state;
    for (int overlap = 0; overlap <= 1; overlap++) {
        bool argument = overlap;
        play_ranks(AS_THREADS, 2, 60, watch_backward, &argument, NULL);
    }
}

// Under no_sync no gradient is expected and no bucket started; gradients accumulate in their
// slices, also across a rebuild, and the next backward reduces their sum.
static void accumulate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_SUM};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "adbc") == 0); // the next forward rebuilds the buckets
    module_zero_grad(scene->rig.model);
    scene->diary[0] = '\0';
    for (int i = 0; i < 2; i++) {
        EXPECT_IN(scene, reducer_prepare(scene->reducer, false, &scene->err) == 0);
        for (int k = 0; k < PARAMETERS; k++) gradient_of(scene, k);
        EXPECT_IN(scene, !scene->reducer->expecting && !scene->reducer->rebuilt);
    }
    diary_is(scene, "");
    float own = 2 * ((float)pg_rank(group) + 1);
    for (int k = 0; k < PARAMETERS; k++) EXPECT_IN(scene, grad_is(rig, k, own));
    EXPECT_IN(scene, reducer_prepare(scene->reducer, true, &scene->err) == 0);
    EXPECT_IN(scene, scene->reducer->rebuilt);
    for (int k = 0; k < PARAMETERS; k++) EXPECT_IN(scene, grad_is(rig, k, own)); // preserved
    for (int k = 0; k < PARAMETERS; k++) gradient_of(scene, k);
    EXPECT_IN(scene, reducer_finish(scene->reducer, NULL, &scene->err) == 0);
    diary_is(scene, "start 0 a d; start 1 b c; finish 0; finish 1; ");
    for (int k = 0; k < PARAMETERS; k++) EXPECT_IN(scene, grad_is(rig, k, 3 * (1 + 2)));
    close_scene(scene);
}

static void no_sync_adds_up_and_sends_nothing(void **state) {
    (void)state;
    play(accumulate);
}

// ---- when something goes wrong ----------------------------------------------------------------

// A parameter without a gradient would block its bucket forever. The error names it, in this step
// and in every later one.
static void leave_one_out(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = 0, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dcba") == 0);
    EXPECT_IN(scene, step(scene, "dca") != 0);
    EXPECT_IN(scene, strstr(scene->err.message, "did not receive grad for rank"));
    EXPECT_IN(scene, strstr(scene->err.message, ": task1.p"));
    diary_is(scene, "start 0 d; start 1 c; finish 0; finish 1; "); // b's bucket blocks a's
    scene->err = (Error){0};
    EXPECT_IN(scene, step(scene, "dcba") != 0 && strstr(scene->err.message, ": task1.p"));
    close_scene(scene);
}

static void an_unused_parameter_is_named(void **state) {
    (void)state;
    play(leave_one_out);
}

static void twice(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = -1, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dcca") != 0);
    EXPECT_IN(scene, strstr(scene->err.message, "mark a variable ready only once"));
    EXPECT_IN(scene, strstr(scene->err.message, "index 2 with name task2.p"));
    close_scene(scene);
}

static void a_gradient_that_is_ready_twice_is_named(void **state) {
    (void)state;
    play(twice);
}

// A hook that fails in start or finish: no further bucket is started, all started buckets are
// finished, the step fails with the hook's message (or a general one, if it has none), and so do
// all later steps.
static void fail_in_hook(ProcessGroup *group, const void *argument, Outcome *outcome) {
    int way = *(const int *)argument;
    const ReducerConfig config = {.bucket_cap_mb = 0, .overlap = way % 2 == 0, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dcba") == 0);
    bool in_finish = way >= 4;
    scene->fails_at = in_finish ? 101 : 2;
    scene->silent = way / 2 % 2;
    EXPECT_IN(scene, step(scene, "dcba") != 0);
    EXPECT_IN(scene, scene->err.status == STATUS_FAILED);
    EXPECT_IN(scene, strstr(scene->err.message, scene->silent ? "diary" : "the cable is cut"));
    if (in_finish)
        diary_is(scene, "start 0 d; start 1 c; start 2 b; start 3 a; "
                        "finish 0; finish 1; finish 2; finish 3; ");
    else
        diary_is(scene, "start 0 d; start 1 c; start 2 b; finish 0; finish 1; ");
    scene->err = (Error){0};
    EXPECT_IN(scene, step(scene, "dcba") != 0 && scene->err.status == STATUS_FAILED);
    diary_is(scene, "");
    close_scene(scene);
}

static void a_failing_hook_ends_the_training(void **state) {
    (void)state;
    for (int way = 0; way < 8; way++) play_ranks(AS_THREADS, 2, 60, fail_in_hook, &way, NULL);
}

// A rank aborts before the second step, which begins with a broadcast of the ready order, or before
// the third, or under no_sync: the next forward fails on all ranks, and so do all later steps.
static void give_up_before_a_forward(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const int way = *(const int *)argument; // 0: before the rebuild, 1: after it, 2: under no_sync
    const ReducerConfig config = {.bucket_cap_mb = 0, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    EXPECT_IN(scene, step(scene, "dcba") == 0);
    if (way == 1) EXPECT_IN(scene, step(scene, "dcba") == 0);
    Error cause = {0}, none = {0};
    error_set(&cause, STATUS_FAILED, "the disk is full");
    if (scene->rig.rank == 1) EXPECT_IN(scene, pg_abort(group, &cause));
    if (way > 0) EXPECT_IN(scene, pg_run(group, pg_barrier(), &none) != 0); // the abort is seen
    for (int again = 0; again < 2; again++) {
        scene->err = (Error){0};
        EXPECT_IN(scene, reducer_prepare(scene->reducer, way < 2, &scene->err) != 0);
        EXPECT_IN(scene, strstr(scene->err.message, "the disk is full"));
        EXPECT_IN(scene, scene->reducer->rebuilt == (way == 1));
        EXPECT_IN(scene, !scene->reducer->expecting);
    }
    close_scene(scene);
}

static void a_forward_on_a_broken_group_ends_the_training(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++)
        play_ranks(AS_THREADS, 2, 60, give_up_before_a_forward, &way, NULL);
}

// If the allocation of gradients fails, reducer_create returns NULL and leaves the parameters
// unchanged.
static void create_on_a_broken_group(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = 0, .overlap = true, .op = PG_AVG};
    Rig self = rig_open(group, outcome), *rig = &self;
    Error cause = {.status = STATUS_FAILED, .message = "the disk is full"}, err = {0};
    rig->model = toy_model(rig->device, PARAMETERS, 0);
    const size_t bytes = rig->device->bytes;
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    module_release_grads(rig->model, &parameters);
    (void)pg_abort(group, &cause);
    EXPECT(!reducer_create(parameters, group, &config, &err));
    EXPECT(strstr(err.message, "the disk is full"));
    for (int k = 0; k < PARAMETERS; k++) {
        const Tensor *tensor = rig_parameter(rig, k);
        EXPECT(!tensor->on_ready && !tensor->grad && !tensor->has_grad && !tensor->reducing);
    }
    module_own_grads(rig->model);
    EXPECT(rig->device->bytes == bytes);
    rig_close(rig);
}

static void without_memory_there_is_no_reducer(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 1, 60, create_on_a_broken_group, NULL, NULL);
}

// ---- the end ------------------------------------------------------------------------------------

typedef struct Calls {
    int fulls, reduced, closed;
} Calls;

static void count_full(void *state, const GradBucket *bucket) {
    (void)bucket;
    ((Calls *)state)->fulls++;
}
static void count_reduced(void *state, const GradBucket *bucket) {
    (void)bucket;
    ((Calls *)state)->reduced++;
}
static void count_closed(void *state) {
    ((Calls *)state)->closed++;
}

// Three iterations with one or both of the calls. One is removed; removing an iteration that was
// never added has no effect; closing the Reducer closes the others and releases the parameters.
static void hang_and_remove(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = 0, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    Calls calls[4] = {{0}};
    const DdpIteration plans[] = {
        {.name = "full", .state = &calls[0], .bucket_full = count_full, .close = count_closed},
        {.name = "reduced", .state = &calls[1], .bucket_reduced = count_reduced},
        {.name = "both",
         .state = &calls[2],
         .bucket_full = count_full,
         .bucket_reduced = count_reduced,
         .close = count_closed}};
    for (int i = 0; i < 3; i++) reducer_add_iteration(scene->reducer, plans[i]);
    reducer_remove_iteration(scene->reducer, &calls[3]);
    for (int i = 0; i < 3; i++)
        EXPECT_IN(scene, reducer_find_iteration(scene->reducer, plans[i].name) == &calls[i]);
    EXPECT_IN(scene, !reducer_find_iteration(scene->reducer, "none"));
    EXPECT_IN(scene, step(scene, "dcba") == 0 && step(scene, "dcba") == 0);
    EXPECT_IN(scene, calls[0].fulls == 1 + PARAMETERS && calls[0].reduced == 0);
    EXPECT_IN(scene, calls[1].fulls == 0 && calls[1].reduced == 1 + PARAMETERS);
    EXPECT_IN(scene, calls[2].fulls == 1 + PARAMETERS && calls[2].reduced == 1 + PARAMETERS);
    reducer_remove_iteration(scene->reducer, &calls[0]);
    EXPECT_IN(scene, calls[0].closed == 1 && scene->reducer->iteration_count == 2);
    EXPECT_IN(scene, reducer_find_iteration(scene->reducer, "both") == &calls[2]);
    EXPECT_IN(scene, reducer_find_iteration(scene->reducer, "reduced") == &calls[1]);
    // Closed during a step, with buckets in flight.
    module_zero_grad(scene->rig.model);
    EXPECT_IN(scene, reducer_prepare(scene->reducer, true, &scene->err) == 0);
    gradient_of(scene, D);
    EXPECT_IN(scene, rig_parameter(&scene->rig, D)->reducing && scene->reducer->launched == 1);
    reducer_close(scene->reducer);
    EXPECT_IN(scene, calls[0].closed == 1 && calls[1].closed == 0 && calls[2].closed == 1);
    for (int k = 0; k < PARAMETERS; k++) {
        const Tensor *tensor = rig_parameter(&scene->rig, k);
        EXPECT_IN(scene, !tensor->on_ready && !tensor->grad && !tensor->has_grad);
        EXPECT_IN(scene, !tensor->reducing);
    }
    module_own_grads(scene->rig.model);
    rig_close(&scene->rig);
    free(scene);
}

static void what_hangs_on_it_is_closed_with_it(void **state) {
    (void)state;
    play(hang_and_remove);
}

// Each step's times are its own and in this order, also if the hook does not report when a bucket
// completed.
static void time_steps(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const ReducerConfig config = {.bucket_cap_mb = TWO_A_BUCKET, .overlap = true, .op = PG_AVG};
    Scene *scene = open_scene(group, outcome, &config);
    const Reducer *reducer = scene->reducer;
    for (int i = 0; i < 5; i++) {
        const uint64_t begin = clock_ns();
        scene->untimed = i >= 3;
        module_zero_grad(scene->rig.model);
        EXPECT_IN(scene, reducer_prepare(scene->reducer, true, &scene->err) == 0);
        const uint64_t prepared = clock_ns();
        reducer_forward_done(scene->reducer);
        const uint64_t between = clock_ns();
        uint64_t launched = 0; // time of the first bucket's start; step 0 has one bucket
        for (int k = PARAMETERS - 1; k >= 0; k--) {
            gradient_of(scene, k);
            if (k == (i == 0 ? A : C)) launched = clock_ns();
        }
        EXPECT_IN(scene, reducer_finish(scene->reducer, NULL, &scene->err) == 0);
        EXPECT_IN(scene, reducer->forward_start >= begin && reducer->forward_start <= prepared);
        EXPECT_IN(scene, reducer->forward_end >= prepared && reducer->forward_end <= between);
        EXPECT_IN(scene, reducer->first_launch >= between && reducer->first_launch <= launched);
        EXPECT_IN(scene, reducer->backward_end >= launched);
        EXPECT_IN(scene, reducer->last_done >= reducer->first_launch);
        EXPECT_IN(scene, reducer->last_done <= reducer->finish_end);
        EXPECT_IN(scene, !scene->untimed || reducer->last_done >= reducer->backward_end);
        EXPECT_IN(scene, reducer->finish_end >= reducer->backward_end);
    }
    close_scene(scene);
}

static void each_step_has_its_own_times(void **state) {
    (void)state;
    play(time_steps);
}

// The last bucket completes before or after the end of backward; the first starts before or after
// it.
static void times_are_between_the_five_events(void **state) {
    (void)state;
    static const struct Case {
        uint64_t launch, backward_end, done, overlap;
    } CASES[] = {{150, 300, 420, 150}, {150, 300, 280, 130}, {150, 300, 300, 150},
                 {310, 300, 420, 0},   {300, 300, 420, 0},   {299, 300, 420, 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        const Reducer reducer = {.forward_start = 10,
                                 .forward_end = 100,
                                 .first_launch = c->launch,
                                 .backward_end = c->backward_end,
                                 .last_done = c->done,
                                 .finish_end = 450};
        const ReducerTimes times = reducer_times(&reducer);
        assert_int_equal(times.forward_compute, 90);
        assert_int_equal(times.backward_compute, 200);
        assert_int_equal(times.backward_comm, c->done - c->launch);
        assert_int_equal(times.overlap, c->overlap);
        assert_int_equal(times.exposed, 150);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_rebuilt_in_ready_order),
        cmocka_unit_test(the_order_is_rank_0s),
        cmocka_unit_test(buckets_by_size_are_numbered_from_the_end),
        cmocka_unit_test(caps_are_in_mebibytes),
        cmocka_unit_test(gradients_lie_in_their_buckets),
        cmocka_unit_test(buckets_are_sent_in_order_inside_backward),
        cmocka_unit_test(no_sync_adds_up_and_sends_nothing),
        cmocka_unit_test(an_unused_parameter_is_named),
        cmocka_unit_test(a_gradient_that_is_ready_twice_is_named),
        cmocka_unit_test(a_failing_hook_ends_the_training),
        cmocka_unit_test(a_forward_on_a_broken_group_ends_the_training),
        cmocka_unit_test(without_memory_there_is_no_reducer),
        cmocka_unit_test(what_hangs_on_it_is_closed_with_it),
        cmocka_unit_test(each_step_has_its_own_times),
        cmocka_unit_test(times_are_between_the_five_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
