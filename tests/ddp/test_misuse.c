/* test_misuse.c: misuse by the caller fails a CHECK whose message names it; the nearest valid
 * values are accepted. Cases: numbers of ranks and tensors, the order of calls, calls with closed
 * objects.
 */
#include "tests/rigs/failed_check.h"
#include "tests/rigs/play_backend.h"
#include "tests/rigs/ranks.h"

#include "ddp/buckets.h"
#include "ddp/distributed_sampler.h"
#include "ddp/reducer.h"
#include "tests/rigs/ddp_toy.h"

// ---- numbers of ranks and tensors ---------------------------------------------------------------

static const BucketTensor TENSORS[] = {{40, 0}, {40, 0}};

static void assign(void *order) {
    BucketPlan plan = buckets_assign(TENSORS, 2, (size_t[]){40}, order ? 1 : 0, order);
    buckets_free(&plan);
}

static void count_samples(void *world) {
    (void)distributed_count(10, *(const int *)world, false);
}

static void buckets_and_worlds(void **state) {
    (void)state;
    int none = 0, one = 1, less = -1;
    assign((size_t[]){1, 0});
    expect_failed_check(assign, (size_t[]){1, 2}, "tensor 2 of 2");
    expect_failed_check(assign, NULL, "buckets need a limit");
    count_samples(&one);
    expect_failed_check(count_samples, &none, "a world of 0");
    expect_failed_check(count_samples, &less, "a world of -1");
}

static Play play;
static ProcessGroup *group; // rank 0 of three, with a backend that the test implements

static void name_rank(void *rank) {
    (void)pg_global_rank(group, *(const int *)rank);
}
static void reach_rank(void *rank) {
    (void)pg_peer_memory(group, play.memory, *(const int *)rank);
}

static void ranks_of_a_group(void **state) {
    (void)state;
    group = open_group(&play, &SIMPLE, 3);
    for (int rank = -1; rank <= 3; rank++) {
        char says[32];
        snprintf(says, sizeof says, "rank %d of 3", rank);
        if (rank >= 0 && rank < 3) {
            assert_int_equal(pg_global_rank(group, rank), rank);
            assert_ptr_equal(pg_peer_memory(group, play.memory, rank), play.memory + rank);
        } else {
            expect_failed_check(name_rank, &rank, says);
            expect_failed_check(reach_rank, &rank, says);
        }
    }
    pg_close(group);
}

static void foreign_memory(void *unused) {
    static float x[4];
    ProcessGroup *alone;
    Error err = {0};
    (void)unused;
    if (init_thread_groups(1, 30, &alone, &err) == 0) (void)pg_peer_memory(alone, x, 0);
}

static void memory_that_is_not_shared(void **state) {
    (void)state;
    expect_failed_check(foreign_memory, NULL, "is in no shared allocation");
}

// ---- the order of calls -------------------------------------------------------------------------

static void close_twice(void *unused) {
    (void)unused;
    pg_close(group);
    pg_close(group);
}

static void wait_twice(void *unused) {
    (void)unused;
    PgWork *work = pg_start(group, pg_barrier(), NULL);
    (void)pg_work_wait(work, NULL, NULL, NULL);
    (void)pg_work_wait(work, NULL, NULL, NULL);
}

static void wait_after_close(void *unused) {
    (void)unused;
    PgWork *work = pg_start(group, pg_barrier(), NULL);
    pg_close(group);
    (void)pg_work_wait(work, NULL, NULL, NULL);
}

static void link_late(void *unused) {
    (void)unused;
    (void)pg_work_wait(pg_start(group, pg_barrier(), NULL), NULL, NULL, NULL);
    pg_emulate_link(group, NULL);
}

static void calls_of_a_group(void **state) {
    (void)state;
    group = open_group(&play, &SIMPLE, 3);
    expect_failed_check(close_twice, NULL, "the group is closed already");
    expect_failed_check(wait_twice, NULL, "the work is not outstanding");
    expect_failed_check(wait_after_close, NULL, "the work is not outstanding");
    expect_failed_check(link_late, NULL, "a link for a group that is in use");
    pg_emulate_link(group, NULL);
    assert_int_equal(pg_run(group, pg_barrier(), NULL), 0);
    pg_close(group);
}

// A wrapper of one parameter, on a group of one rank.
static Rig wrap_alone(Outcome *outcome) {
    Error err = {0};
    ProcessGroup *alone;
    CHECK_OK(init_thread_groups(1, 30, &alone, &err) == 0, err);
    Rig rig = rig_open(alone, outcome);
    const DdpConfig config = ddp_config_default();
    rig_wrap(&rig, toy_model(rig.device, 1, 1), &config);
    return rig;
}

static void finish_first(void *rig) {
    (void)ddp_finish_backward(((Rig *)rig)->wrapper, NULL, NULL);
}

static void set_policy_late(void *rig) {
    toy_train(rig, (float[]){4});
    reducer_set_policy(ddp_reducer(((Rig *)rig)->wrapper), (ReadyPolicy){.name = "a policy"});
}

static void add_iterations(void *rig) {
    Reducer *reducer = ddp_reducer(((Rig *)rig)->wrapper);
    while (reducer->iteration_count < 8) // the maximum
        reducer_add_iteration(reducer, (DdpIteration){.name = "a further one"});
    reducer_add_iteration(reducer, (DdpIteration){.name = "one too many"});
}

static void ask_the_model(void *rig) {
    (void)ddp_group(((Rig *)rig)->model);
}

static void close_group_first(void *alone) {
    pg_close(alone);
}

// A group cannot be closed before its wrapper is unwrapped or closed. A constructor that fails
// leaves no wrapper.
static void a_group_outlives_its_wrapper(void **state) {
    (void)state;
    Outcome outcome = {.problem = ""};
    Error err = {0};
    Rig rig = wrap_alone(&outcome);
    ProcessGroup *alone = rig.group;
    Module *frozen = matrix_model(rig.device, 1, 1, 0);
    module_parameter(frozen, 0)->requires_grad = false;
    assert_null(distributed_data_parallel(frozen, alone, &(DdpConfig){.bucket_cap_mb = 1}, &err));
    module_close(frozen);
    expect_failed_check(close_group_first, alone, "rank 0: pg_close: a wrapper uses the group");
    assert_ptr_equal(ddp_unwrap(rig.wrapper), rig.model);
    rig.wrapper = NULL;
    rig_close(&rig);
    pg_close(alone);
}

static void calls_of_a_wrapper(void **state) {
    (void)state;
    Outcome outcome = {.problem = ""};
    Rig rig = wrap_alone(&outcome);
    assert_ptr_equal(ddp_group(rig.wrapper), rig.group);
    expect_failed_check(ask_the_model, &rig, "a Toy is no DistributedDataParallel");
    expect_failed_check(finish_first, &rig, "ddp_finish_backward without a forward");
    expect_failed_check(set_policy_late, &rig, "a policy must be set before the first forward");
    expect_failed_check(add_iterations, &rig, "no room for one too many");
    reducer_set_policy(ddp_reducer(rig.wrapper), (ReadyPolicy){.name = "a policy"});
    toy_train(&rig, (float[]){4});
    assert_string_equal(outcome.problem, "");
    ProcessGroup *alone = rig.group;
    rig_close(&rig);
    pg_close(alone);
}

// The message has room for 27 names of 17 characters with their commas; a 28th is cut off.
static void unused_names_are_listed_while_they_fit(void **state) {
    (void)state;
    for (int unused = 27; unused <= 28; unused++) {
        Outcome outcome = {.problem = ""};
        Error err = {0};
        ProcessGroup *alone;
        float factors[29] = {1};
        CHECK_OK(init_thread_groups(1, 30, &alone, &err) == 0, err);
        Rig rig = rig_open(alone, &outcome);
        Module *model = module_create("Toy", toy_forward);
        for (int k = 0; k <= unused; k++) {
            char name[MODULE_NAME];
            snprintf(name, sizeof name, "%015d", k);
            Module *task = module_add(model, name, module_create("Task", task_forward));
            module_add_parameter(task, rig.device, "p", 1, (size_t[]){1});
        }
        rig_wrap(&rig, model, &(DdpConfig){.bucket_cap_mb = 1});
        assert_int_equal(toy_step(&rig, factors, &err), -1);
        check_message(&err, "for rank 0: 000000000000001.p, 000000000000002.p, ");
        check_message(&err, ", 000000000000027.p");
        assert_string_equal(strstr(err.message, "27.p"), unused == 27 ? "27.p" : "27.p...");
        rig_close(&rig);
        pg_close(alone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_and_worlds),
        cmocka_unit_test(ranks_of_a_group),
        cmocka_unit_test(memory_that_is_not_shared),
        cmocka_unit_test(calls_of_a_group),
        cmocka_unit_test(calls_of_a_wrapper),
        cmocka_unit_test(a_group_outlives_its_wrapper),
        cmocka_unit_test(unused_names_are_listed_while_they_fit),
    };
    if (UNDER_TSAN) return 77; // children with threads
    return cmocka_run_group_tests(tests, NULL, NULL);
}
