/* test_pg_nccl_faults.c: errors of an nccl group, and that no rank hangs, when a rank dies, fails,
 * disagrees, is late or shares a GPU; on the emulator also when NCCL fails or hangs.
 */
#include "tests/rigs/nccl_ranks.h"

#include <signal.h>

static int gpus; // of this host, at most WORLD_MAX

static void need_gpus(int count) {
    if (gpus < count) skip();
}

#define SHORT_S 3.0

// Rank 1 is killed before its third collective; the other ranks have enqueued theirs and wait for
// the stream, as a training step does.
static void lose_one(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument;
    float *x = device_alloc(device, 1000 * sizeof *x);
    device_kernels(device)->elementwise->fill(x, 1, 1000);
    for (int i = 0; i < 2; i++)
        ok(pg_run(group, pg_all_reduce(x, 1000, PG_F32, PG_SUM), &outcome->error), &outcome->error,
           outcome);
    device_synchronize(device);
    if (pg_rank(group) == 1) {
        struct timespec pause = {.tv_nsec = 700 * 1000 * 1000}; // its last call becomes known
        nanosleep(&pause, NULL);
        outcome->ends = SIGKILL;
        raise(SIGKILL);
    }
    (void)pg_run(group, pg_all_reduce(x, 1000, PG_F32, PG_SUM), &outcome->error);
    device_synchronize(device); // returns, because the communicator is aborted
    if (pg_run(group, pg_barrier(), &outcome->error) == 0) problem(outcome, "it went well");
    device_free(device, x, 1000 * sizeof *x);
}

static void test_killed_rank(void **state) {
    (void)state;
    need_gpus(2);
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = gpus, .timeout_s = SHORT_S, .body = lose_one};
    play_well(&play, outcomes);
    for (int r = 0; r < gpus; r++) {
        if (r == 1) continue;
        const char *said = outcomes[r].error.message;
        if (!strstr(said,
                    "collective 3 all_reduce(F32, 1000, sum): rank 1 did not arrive within") ||
            !strstr(said, "rank 1 last called 2 all_reduce(F32, 1000, sum)"))
            fail_msg("rank %d: %s", r, said);
    }
}

// The same inside NCCL's own wait: the first collective of its kind, on a blocking communicator.
static void lose_one_inside(ProcessGroup *group, Device *device, const void *argument,
                            Outcome *outcome) {
    const size_t count = 1000, bytes = count * sizeof(float);
    float *x = device_alloc(device, bytes);
    float *all = device_alloc(device, WORLD_MAX * bytes);
    device_kernels(device)->elementwise->fill(all, 1, WORLD_MAX * count);
    if (pg_rank(group) == 1) {
        struct timespec pause = {.tv_nsec = 700 * 1000 * 1000};
        nanosleep(&pause, NULL);
        outcome->ends = SIGKILL;
        raise(SIGKILL);
    }
    Collective collective = pg_broadcast(x, count, PG_F32, 0);
    if (strcmp(argument, "gather") == 0) collective = pg_gather(x, all, count, PG_F32, 0);
    if (strcmp(argument, "scatter") == 0) collective = pg_scatter(all, x, count, PG_F32, 0);
    if (pg_run(group, collective, &outcome->error) == 0) problem(outcome, "it went well");
    device_synchronize(device);
    device_free(device, x, bytes);
    device_free(device, all, WORLD_MAX * bytes);
}

static void test_killed_rank_of_a_blocking_communicator(void **state) {
    static const char *const collectives[] = {"broadcast", "gather", "scatter"};
    (void)state;
    need_gpus(2);
    Outcome outcomes[RANKS_MAX];
    for (int i = 0; i < 3; i++) {
        Play play = {
            .world = 2, .timeout_s = SHORT_S, .body = lose_one_inside, .argument = collectives[i]};
        setenv("NCCL_COMM_BLOCKING", "1", 1);
        play_well(&play, outcomes);
        unsetenv("NCCL_COMM_BLOCKING");
        if (!strstr(outcomes[0].error.message, "rank 1 did not arrive within"))
            fail_msg("%s: %s", collectives[i], outcomes[0].error.message);
    }
}

// Rank 0 aborts the group; the others are in a collective with a long deadline.
static void give_up(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument, (void)device;
    double value = 1;
    Error cause = {0};
    ok(pg_run(group, pg_all_reduce(&value, 1, PG_F64, PG_SUM), &outcome->error), &outcome->error,
       outcome);
    if (pg_rank(group) == 0) {
        error_set(&cause, STATUS_FAILED, "the disk is full");
        if (!pg_abort(group, &cause)) problem(outcome, "the group was broken already");
    } else if (pg_run(group, pg_all_reduce(&value, 1, PG_F64, PG_SUM), &outcome->error) == 0) {
        problem(outcome, "it went well");
    }
}

static void test_abort(void **state) {
    (void)state;
    need_gpus(2);
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = gpus, .timeout_s = 60, .body = give_up};
    play_well(&play, outcomes);
    for (int r = 1; r < gpus; r++)
        if (!strstr(outcomes[r].error.message, "rank 0: the disk is full"))
            fail_msg("rank %d: %s", r, outcomes[r].error.message);
}

static void disagree(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument, (void)device;
    double values[2] = {1, 1};
    size_t count = pg_rank(group) == 1 ? 2 : 1;
    ok(pg_run(group, pg_all_reduce(values, 1, PG_F64, PG_SUM), &outcome->error), &outcome->error,
       outcome);
    if (pg_run(group, pg_all_reduce(values, count, PG_F64, PG_SUM), &outcome->error) == 0)
        problem(outcome, "it went well");
}

static void test_disagreement(void **state) {
    (void)state;
    need_gpus(2);
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = gpus, .timeout_s = 60, .body = disagree};
    setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);
    play_well(&play, outcomes);
    unsetenv("TORCH_DISTRIBUTED_DEBUG");
    for (int r = 0; r < gpus; r++)
        if (!strstr(outcomes[r].error.message,
                    "collective 2: ranks disagree: rank 0 runs all_reduce(F64, 1, sum), rank 1 "
                    "runs all_reduce(F64, 2, sum); they differ in size"))
            fail_msg("rank %d: %s", r, outcomes[r].error.message);
}

static void nothing(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)group, (void)device, (void)argument;
    problem(outcome, "there is a group");
}

static void expect_no_sharing(void) {
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 2, .timeout_s = 20, .one_gpu = true, .body = nothing};
    play_all(&play, outcomes);
    for (int r = 0; r < 2; r++)
        if (outcomes[r].error.status != STATUS_USAGE ||
            !strstr(outcomes[r].error.message, "ranks 0 and 1 share a GPU") ||
            !strstr(outcomes[r].error.message, "ddprun --fake-hosts"))
            fail_msg("rank %d: %s", r, outcomes[r].error.message);
}

static void test_shared_gpu(void **state) {
    (void)state;
    expect_no_sharing();
}

static void wait_late(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument, (void)device;
    if (pg_rank(group) > 0) {
        struct timespec pause = {.tv_sec = 1, .tv_nsec = 500000000};
        nanosleep(&pause, NULL);
        return;
    }
    if (pg_monitored_barrier(group, 1, true, &outcome->error) == 0)
        problem(outcome, "it went well");
}

static void test_monitored_barrier(void **state) {
    (void)state;
    need_gpus(2);
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 2, .timeout_s = 60, .body = wait_late};
    play_well(&play, outcomes);
    if (!strstr(outcomes[0].error.message, "Rank 1 failed to pass monitoredBarrier in 1000 ms"))
        fail_msg("%s", outcomes[0].error.message);
}

// ---- faults of the emulator -----------------------------------------------------------------

static void two_collectives(ProcessGroup *group, Device *device, const void *argument,
                            Outcome *outcome) {
    (void)argument;
    float *x = device_alloc(device, 1000 * sizeof *x);
    device_kernels(device)->elementwise->fill(x, 1, 1000);
    int failed = 0;
    for (int i = 0; i < 2 && !failed; i++)
        failed = pg_run(group, pg_all_reduce(x, 1000, PG_F32, PG_SUM), &outcome->error);
    if (!failed) failed = pg_run(group, pg_barrier(), &outcome->error);
    if (!failed) problem(outcome, "it went well");
    device_free(device, x, 1000 * sizeof *x);
}

static void need_emulator(void) {
#ifndef CUDA_EMULATED
    skip();
#endif
    need_gpus(2);
}

// Rank 0's third collective of NCCL fails (the group itself runs the first).
static void test_asynchronous_error(void **state) {
    (void)state;
    need_emulator();
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 2,
                 .timeout_s = 60,
                 .body = two_collectives,
                 .variable = "DDPC_EMULATED_NCCL_ERROR_AT",
                 .value = "3"};
    play_well(&play, outcomes);
    for (int r = 0; r < 2; r++)
        if (!strstr(outcomes[r].error.message, "rank 0: ") ||
            !strstr(outcomes[r].error.message, "network error"))
            fail_msg("rank %d: %s", r, outcomes[r].error.message);
}

static void test_standstill(void **state) {
    (void)state;
    need_emulator();
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 2,
                 .timeout_s = SHORT_S,
                 .body = two_collectives,
                 .variable = "DDPC_EMULATED_NCCL_HANG_AT",
                 .value = "3"};
    play_well(&play, outcomes);
    for (int r = 0; r < 2; r++)
        if (!strstr(outcomes[r].error.message, "collective 2 all_reduce(F32, 1000, sum)") &&
            !strstr(outcomes[r].error.message, "collective 3 barrier"))
            fail_msg("rank %d: %s", r, outcomes[r].error.message);
}

// NCCL's abort hangs: the process prints the error and exits.
static void expect_the_end(ProcessGroup *group, Device *device, const void *argument,
                           Outcome *outcome) {
    setenv("DDPC_EMULATED_NCCL_ABORT_HANGS", "1", 1);
    outcome->ends = STATUS_FAILED << 8;
    two_collectives(group, device, argument, outcome);
}

static void test_abort_hangs(void **state) {
    (void)state;
    need_emulator();
    Play play = {.world = 2,
                 .timeout_s = 1,
                 .body = expect_the_end,
                 .variable = "DDPC_EMULATED_NCCL_HANG_AT",
                 .value = "3"};
    play_well(&play, NULL);
}

static void add_up(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument, (void)device;
    double value = 1;
    if (ok(pg_run(group, pg_all_reduce(&value, 1, PG_F64, PG_SUM), &outcome->error),
           &outcome->error, outcome) &&
        value != 2)
        problem(outcome, "the sum is %g", value);
}

// NCCL 2.30.3 allows ranks to share a GPU if the environment variable is set; earlier versions
// never do.
static void test_ranks_that_may_share_a_gpu(void **state) {
    (void)state;
    need_emulator();
    Play play = {.world = 2, .timeout_s = 20, .one_gpu = true, .body = add_up};
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("DDPC_EMULATED_NCCL_VERSION", "22809", 1);
    expect_no_sharing();
    setenv("DDPC_EMULATED_NCCL_VERSION", "23003", 1);
    play_well(&play, NULL);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
    expect_no_sharing();
    unsetenv("DDPC_EMULATED_NCCL_VERSION");
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

// An NCCL that may lack functions is refused before any of them is called; other patch versions are
// accepted.
static void test_versions(void **state) {
    (void)state;
    need_emulator();
    const char *const refused[][2] = {
        {"21805", "NCCL 2.18.5 was found at run time, 2.19 or later is needed"},
        {"21903", "built with NCCL 2.20.5 and finds 2.19.3 at run time: 2.20 or a newer 2.x is"},
        {"30000", "built with NCCL 2.20.5 and finds 3.0.0 at run time: 2.20 or a newer 2.x is"}};
    const char *const taken[] = {"22000", "22005", "22100"};
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 2, .timeout_s = 20, .body = nothing};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        setenv("DDPC_EMULATED_NCCL_VERSION", refused[i][0], 1);
        play_all(&play, outcomes);
        for (int r = 0; r < 2; r++)
            if (outcomes[r].error.status != STATUS_SKIPPED ||
                !strstr(outcomes[r].error.message, refused[i][1]))
                fail_msg("rank %d: %s", r, outcomes[r].error.message);
    }
    play.body = add_up;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        setenv("DDPC_EMULATED_NCCL_VERSION", taken[i], 1);
        play_well(&play, NULL);
    }
    unsetenv("DDPC_EMULATED_NCCL_VERSION");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_rank),
        cmocka_unit_test(test_killed_rank_of_a_blocking_communicator),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_shared_gpu),
        cmocka_unit_test(test_monitored_barrier),
        cmocka_unit_test(test_asynchronous_error),
        cmocka_unit_test(test_standstill),
        cmocka_unit_test(test_abort_hangs),
        cmocka_unit_test(test_ranks_that_may_share_a_gpu),
        cmocka_unit_test(test_versions),
    };
    gpus = find_gpus();
    return gpus > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : STATUS_SKIPPED;
}
