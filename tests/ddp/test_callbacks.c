/* test_callbacks.c: the contract of a Reducer's callbacks (ddp/reducer.h): when each is called, and
 * that a failure is an error on its rank, even if the callback sets no message.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "ddp/features/comm_hooks.h"
#include "ddp/reducer.h"
#include "tests/rigs/ddp_toy.h"

enum { TASKS = 3 };

// ---- a failure without a message --------------------------------------------------------------

// The callback that fails in its second step.
typedef enum Failing {
    HOOK_START,
    HOOK_FINISH,
    POLICY_STARTED,
    POLICY_REDUCED,
    ITERATION_BEFORE,
    FAILING_COUNT
} Failing;

typedef struct Plan {
    Failing which;
    bool says_why, overlap;
} Plan;

typedef struct Callbacks {
    ProcessGroup *group;
    const Plan *plan;
    int step;
    int starts, finishes; // in the current step
    bool closed[3];       // of the hook, the policy, the iteration
} Callbacks;

static int fail_if(Callbacks *callbacks, Failing which, Error *err) {
    if (callbacks->step < 1 || callbacks->plan->which != which) return 0;
    return callbacks->plan->says_why ? error_set(err, STATUS_USAGE, "it has its reasons") : -1;
}

static int start(void *state, GradBucket *bucket, Error *err) {
    Callbacks *callbacks = state;
    CHECK(++callbacks->starts < 100, "the reducer asks for the same bucket again and again");
    if (bucket->index == 1 && fail_if(callbacks, HOOK_START, err) != 0) return -1;
    bucket->work =
        pg_start(callbacks->group, grad_bucket_all_reduce(bucket, PG_F32, bucket->op), err);
    return bucket->work ? 0 : -1;
}

static int finish(void *state, GradBucket *bucket, Error *err) {
    Callbacks *callbacks = state;
    callbacks->finishes++;
    if (pg_work_wait(bucket->work, NULL, &bucket->done_ns, err) != 0) return -1;
    return bucket->index == 1 ? fail_if(callbacks, HOOK_FINISH, err) : 0;
}

static int buckets_started(void *state, Error *err) {
    return fail_if(state, POLICY_STARTED, err);
}

static int buckets_reduced(void *state, Error *err) {
    return fail_if(state, POLICY_REDUCED, err);
}

static int before(void *state, bool reduces, int *root, Error *err) {
    (void)reduces, (void)root;
    return fail_if(state, ITERATION_BEFORE, err);
}

static void close_hook(void *state) {
    ((Callbacks *)state)->closed[0] = true;
}
static void close_policy(void *state) {
    ((Callbacks *)state)->closed[1] = true;
}
static void close_iteration(void *state) {
    ((Callbacks *)state)->closed[2] = true;
}

static void hang_all(Rig *rig, Callbacks *callbacks) {
    Reducer *reducer = ddp_reducer(rig->wrapper);
    const CommHook hook = {.name = "grumpy hook",
                           .state = callbacks,
                           .start = start,
                           .finish = finish,
                           .close = close_hook};
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    reducer_set_policy(reducer, (ReadyPolicy){.name = "grumpy policy",
                                              .state = callbacks,
                                              .permanent_buckets = true,
                                              .buckets_started = buckets_started,
                                              .buckets_reduced = buckets_reduced,
                                              .close = close_policy});
    reducer_add_iteration(reducer, (DdpIteration){.name = "grumpy iteration",
                                                  .state = callbacks,
                                                  .before = before,
                                                  .close = close_iteration});
}

static void fail_in_second_step(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Plan *plan = argument;
    Callbacks callbacks = {.group = group, .plan = plan};
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = {.overlap = plan->overlap}; // one bucket per gradient
    rig_wrap(rig, toy_model(rig->device, TASKS, 1), &config);
    hang_all(rig, &callbacks);
    toy_train(rig, (float[]){4, 4, 4});
    EXPECT(callbacks.starts == TASKS && callbacks.finishes == TASKS);
    callbacks = (Callbacks){.group = group, .plan = plan, .step = 1};
    module_zero_grad(rig->model);
    EXPECT(toy_step(rig, (float[]){4, 4, 4}, &outcome->error) != 0);
    // Started buckets are finished; after a failure no bucket is started.
    bool early = plan->which == ITERATION_BEFORE, at_start = plan->which == HOOK_START;
    EXPECT(callbacks.starts == (early ? 0 : at_start ? 2 : TASKS));
    EXPECT(callbacks.finishes == (early ? 0 : at_start ? 1 : TASKS));
    if (!early) { // later steps repeat the error
        Error err = {0};
        EXPECT(toy_step(rig, (float[]){4, 4, 4}, &err) != 0);
        EXPECT(strstr(err.message, outcome->error.message));
    }
    rig_close(rig);
    EXPECT(callbacks.closed[0] && callbacks.closed[1] && callbacks.closed[2]);
}

static void test_failures_that_do_not_say_why(void **state) {
    (void)state;
    static const char *const says[FAILING_COUNT] = {
        "grumpy hook failed in start and did not say why",
        "grumpy hook failed in finish and did not say why",
        "grumpy policy failed in buckets_started and did not say why",
        "grumpy policy failed in buckets_reduced and did not say why",
        "grumpy iteration failed before a forward and did not say why"};
    for (Failing which = 0; which < FAILING_COUNT; which++)
        for (int overlap = 0; overlap <= 1; overlap++)
            for (int says_why = 0; says_why <= 1; says_why++) {
                Outcome outcomes[RANKS_MAX];
                const Plan plan = {which, says_why, overlap};
                play_both(2, fail_in_second_step, &plan, outcomes);
                for (int r = 0; r < 2; r++) {
                    const Error *err = &outcomes[r].error;
                    check_message(err, says_why ? "it has its reasons" : says[which]);
                    if (says_why) assert_null(strstr(err->message, "did not say why"));
                }
            }
}

// ---- who is called when -----------------------------------------------------------------------

typedef struct Diary {
    char text[200];
} Diary;

static void note(void *state, const char *word) {
    Diary *diary = state;
    strncat(diary->text, word, sizeof diary->text - strlen(diary->text) - 1);
}

static int note_before(void *state, bool reduces, int *root, Error *err) {
    (void)root, (void)err;
    note(state, reduces ? "before " : "unreduced ");
    return 0;
}
static void note_full(void *state, const GradBucket *bucket) {
    note(state, bucket->is_last ? "full(last) " : "full ");
}
static void note_reduced(void *state, const GradBucket *bucket) {
    note(state, bucket->is_last ? "reduced(last) " : "reduced ");
}
static void note_after(void *state) {
    note(state, "after ");
}

static void keep_diary(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = {.overlap = true};
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    Reducer *reducer = ddp_reducer(rig->wrapper);
    Diary diary = {""};
    reducer_add_iteration(reducer, (DdpIteration){.name = "diary",
                                                  .state = &diary,
                                                  .before = note_before,
                                                  .bucket_full = note_full,
                                                  .bucket_reduced = note_reduced,
                                                  .after = note_after});
    EXPECT(reducer_find_iteration(reducer, "diary") == &diary);
    bool no_sync = ddp_no_sync_begin(rig->wrapper);
    toy_train(rig, (float[]){4, 4});
    ddp_no_sync_end(rig->wrapper, no_sync);
    EXPECT(strcmp(diary.text, "unreduced ") == 0);
    for (int step = 0; step < 2; step++) { // step 0 has one bucket, step 1 has two
        diary.text[0] = '\0';
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){4, 4});
        EXPECT(strcmp(diary.text,
                      step == 0 ? "before full(last) reduced(last) after "
                                : "before full full(last) reduced reduced(last) after ") == 0);
    }
    reducer_remove_iteration(reducer, &diary);
    EXPECT(!reducer_find_iteration(reducer, "diary"));
    diary.text[0] = '\0';
    module_zero_grad(rig->model);
    toy_train(rig, (float[]){4, 4});
    EXPECT(diary.text[0] == '\0');
    rig_close(rig);
}

static void test_iterations_are_told_in_order(void **state) {
    (void)state;
    play_both(2, keep_diary, NULL, NULL);
}

// ---- steps that are replayed --------------------------------------------------------------------

static int hook_does_nothing(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket, (void)err;
    return 0;
}

static bool is_named(const Reducer *reducer, const char *name) {
    const char *unrecordable = reducer_unrecordable(reducer);
    return name ? unrecordable && strcmp(unrecordable, name) == 0 : !unrecordable;
}

// A callback is graph_safe only if it declares it.
static void hang_on(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = {.overlap = true};
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    Reducer *reducer = ddp_reducer(rig->wrapper);
    CommHook hook = {.name = "hook", .start = hook_does_nothing, .finish = hook_does_nothing};
    Diary safe = {""}, other = {""};
    EXPECT(is_named(reducer, NULL));
    reducer_add_iteration(reducer,
                          (DdpIteration){.name = "safe", .state = &safe, .graph_safe = true});
    EXPECT(is_named(reducer, NULL));
    reducer_add_iteration(reducer, (DdpIteration){.name = "iteration", .state = &other});
    EXPECT(is_named(reducer, "iteration"));
    reducer_set_policy(reducer, (ReadyPolicy){.name = "policy"});
    EXPECT(is_named(reducer, "policy"));
    reducer_set_policy(reducer, (ReadyPolicy){.name = "policy", .graph_safe = true});
    EXPECT(is_named(reducer, "iteration"));
    EXPECT(reducer_set_hook(reducer, hook, NULL) == 0);
    EXPECT(is_named(reducer, "hook"));
    reducer_remove_hook(reducer);
    hook.graph_safe = true;
    EXPECT(reducer_set_hook(reducer, hook, NULL) == 0);
    reducer_remove_iteration(reducer, &other);
    EXPECT(is_named(reducer, NULL));
    const CommHook ours[] = {comm_hook_all_reduce(group), comm_hook_noop(),
                             comm_hook_compress(group, PG_BF16),
                             comm_hook_round(comm_hook_all_reduce(group), PG_F16)};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        reducer_remove_hook(reducer);
        EXPECT(reducer_set_hook(reducer, ours[i], NULL) == 0 && is_named(reducer, NULL));
    }
    rig_close(rig);
}

static void test_a_step_is_recorded_only_if_all_agree(void **state) {
    (void)state;
    play_both(1, hang_on, NULL, NULL);
}

// ---- hooks that are refused ------------------------------------------------------------------

static int never(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket;
    return error_set(err, STATUS_FAILED, "a refused hook was called");
}

static void count_close(void *state) {
    ++*(int *)state;
}

// A hook that lacks one of its functions, for each function, and a second complete hook: each
// refused hook is closed once, and the registered hook still reduces.
static void refuse_hooks(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    int closed = 0;
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    const CommHook whole = {
        .name = "whole", .state = &closed, .start = never, .finish = never, .close = count_close};
    CommHook lacking[] = {whole, whole, whole};
    lacking[0].name = NULL;
    lacking[1].start = NULL;
    lacking[2].finish = NULL;
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        EXPECT(ddp_register_comm_hook(rig->wrapper, lacking[i], &err) != 0);
        EXPECT(strstr(err.message, "Communication hook must be callable"));
        EXPECT(closed == i + 1);
    }
    EXPECT(ddp_register_comm_hook(rig->wrapper, comm_hook_all_reduce(group), NULL) == 0);
    EXPECT(ddp_register_comm_hook(rig->wrapper, whole, &(Error){0}) != 0);
    EXPECT(closed == 4);
    toy_train(rig, (float[]){1});
    EXPECT(grad_is(rig, 0, 0.25f));
    rig_close(rig);
    EXPECT(closed == 4);
}

static void test_refused_hooks_are_closed(void **state) {
    (void)state;
    play_both(2, refuse_hooks, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_that_do_not_say_why),
        cmocka_unit_test(test_iterations_are_told_in_order),
        cmocka_unit_test(test_a_step_is_recorded_only_if_all_agree),
        cmocka_unit_test(test_refused_hooks_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
