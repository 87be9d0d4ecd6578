/* test_semantics_pg.c: rows 80 to 86 of PyTorch's acceptance list (tests/semantics.md): monitored
 * barrier, mismatched collectives, sequence numbers, dead ranks, barriers and their timeouts.
 */
#include "tests/rigs/rank_failures.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

// Runs the body with ranks as threads and as processes. All ranks must report the same message,
// which contains all `parts`, separated by '|'.
static void play_failure(int world, double timeout_s, RankBody *body, const void *argument,
                         const char *parts) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        Outcome outcomes[RANKS_MAX];
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        play_ranks(mode, world, timeout_s, body, argument, outcomes);
        check_messages(outcomes, world, parts);
    }
}

static void play_both(int world, double timeout_s, RankBody *body) {
    play_ranks(AS_THREADS, world, timeout_s, body, NULL, NULL);
    if (!UNDER_TSAN) play_ranks(AS_PROCESSES, world, timeout_s, body, NULL, NULL);
}

static void expect_success(int status, const char *what, Outcome *outcome) {
    if (status) problem(outcome, "%s: %s", what, outcome->error.message);
}

// ---- 80: monitored barrier ------------------------------------------------------------------

static void passes(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    for (int i = 0; i < 20; i++) {
        bool all = i % 2;
        expect_success(pg_monitored_barrier(group, 30, all, &outcome->error), "passes", outcome);
    }
    float one = 1;
    expect_success(pg_run(group, pg_all_reduce(&one, 1, PG_F32, PG_SUM), &outcome->error), "after",
                   outcome);
    if (one != (float)pg_size(group)) problem(outcome, "the sum is %g", (double)one);
}

static void row_80_monitored_barrier_passes(void **state) {
    (void)state;
    play_both(4, 60, passes);
}

typedef struct Absence {
    unsigned absent; // bit r: rank r calls nothing until the other ranks have failed
    bool wait_all_ranks;
} Absence;

// The group's timeout is a minute: the barrier's own timeout must expire first.
static void absent(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Absence *a = argument;
    expect_success(pg_run(group, pg_barrier(), &outcome->error), "all are there", outcome);
    if (a->absent >> pg_rank(group) & 1) wait_for_failure(group, outcome);
    check_failure(group, pg_monitored_barrier(group, 1.0, a->wait_all_ranks, &outcome->error),
                  outcome);
}

static void row_80_monitored_barrier_one_missing(void **state) {
    (void)state;
    Absence a = {.absent = 1 << 1};
    play_failure(3, 60, absent, &a,
                 "Rank 1 failed to pass monitoredBarrier in 1000 ms|"
                 "rank 1 last finished 1 barrier");
}

// If several ranks are absent, the error names the lowest.
static void row_80_monitored_barrier_failure_order(void **state) {
    (void)state;
    Absence a = {.absent = 1 << 1 | 1 << 2};
    play_failure(4, 60, absent, &a, "barrier: Rank 1 failed to pass monitoredBarrier in 1000 ms");
}

static void row_80_monitored_barrier_wait_all_ranks(void **state) {
    (void)state;
    Absence a = {.absent = 1 << 1 | 1 << 3, .wait_all_ranks = true};
    play_failure(5, 60, absent, &a,
                 "barrier: Ranks 1, 3 failed to pass monitoredBarrier in 1000 ms");
}

static void rank_0_has_no_time(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    double timeout_s = pg_rank(group) == 0 ? 0 : 30;
    check_failure(group, pg_monitored_barrier(group, timeout_s, false, &outcome->error), outcome);
}

static void row_80_monitored_barrier_rank_0_timeout(void **state) {
    (void)state;
    play_failure(3, 60, rank_0_has_no_time, NULL,
                 "Rank 0 timed out in monitoredBarrier after 0 ms.");
}

// Wraps sync_wait of the library (--wrap). When the wait of rank 2 times out, it returns only after
// rank 1 has exited: rank 0 has failed by then, and its error must be the reported one.
SyncResult __real_sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t until,
                            int spins);
SyncResult __wrap_sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t until,
                            int spins);

static pid_t slow_until_end_of; // pid of rank 1, in rank 2's process; elsewhere 0

SyncResult __wrap_sync_wait(SyncWord *word, uint32_t target, SyncWord *abort_flag, uint64_t until,
                            int spins) {
    SyncResult result = __real_sync_wait(word, target, abort_flag, until, spins);
    if (result != SYNC_TIMEOUT || !slow_until_end_of) return result;
    struct pollfd end = {(int)syscall(SYS_pidfd_open, slow_until_end_of, 0), POLLIN, 0};
    if (end.fd >= 0) poll(&end, 1, 30000);
    if (end.fd >= 0) close(end.fd);
    return result;
}

static void looks_late(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    outcome->number = getpid();
    expect_success(pg_run(group, pg_barrier(), &outcome->error), "all are there", outcome);
    if (pg_rank(group) == 1) wait_for_failure(group, outcome);
    if (pg_rank(group) == 2) slow_until_end_of = (pid_t)outcome[-1].number;
    double timeout_s = pg_rank(group) == 0 ? 0.5 : 30;
    check_failure(group, pg_monitored_barrier(group, timeout_s, false, &outcome->error), outcome);
}

static void row_80_monitored_barrier_first_words_count(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    if (UNDER_TSAN) skip();
    play_ranks(AS_PROCESSES, 3, 60, looks_late, NULL, outcomes);
    check_messages(outcomes, 3, "barrier: Rank 1 failed to pass monitoredBarrier in 500 ms");
}

// PyTorch's rank would hang in the all_reduce; here both sides get an error at once.
static void is_in_all_reduce(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 0;
    if (pg_rank(group) == 1)
        expect_failure(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), outcome);
    else
        check_failure(group, pg_monitored_barrier(group, 30, false, &outcome->error), outcome);
}

static void row_80_monitored_barrier_allreduce_hang(void **state) {
    (void)state;
    play_failure(3, 60, is_in_all_reduce, NULL,
                 "collective 1: ranks disagree|rank 0 runs barrier|"
                 "rank 1 runs all_reduce(F32, 1, sum)");
}

static void in_subgroup(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const int members[] = {1, 2};
    ProcessGroup *part = pg_new_subgroup(group, members, 2, &outcome->error);
    expect_success(outcome->error.status, "new group", outcome);
    expect_success(pg_monitored_barrier(part, 30, true, &outcome->error), "subgroup", outcome);
    if (pg_rank(group) == 1) {
        Error err = {0};
        if (pg_monitored_barrier(part, 0.2, true, &err) == 0)
            problem(outcome, "rank 2 did not come");
        if (!strstr(err.message, "Rank 1 (global 2) failed to pass monitoredBarrier in 200 ms"))
            problem(outcome, "%s", err.message);
    }
    // The failure leaves the parent group intact.
    expect_success(pg_run(group, pg_barrier(), &outcome->error), "parent", outcome);
    pg_close(part);
}

static void row_80_monitored_barrier_subgroup(void **state) {
    (void)state;
    play_both(3, 60, in_subgroup);
}

// ---- 81: collectives that do not match ------------------------------------------------------

typedef struct Mismatch {
    Collective common, odd; // odd: the last rank's
} Mismatch;

enum { GOOD = UNDER_TSAN ? 50 : 500 };

static void mismatch(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Mismatch *m = argument;
    float x[40] = {0};
    Collective mine = pg_rank(group) == pg_size(group) - 1 ? m->odd : m->common;
    mine.send = mine.receive = x;
    for (int i = 0; i < GOOD && !outcome->problem[0]; i++)
        expect_success(pg_run(group, pg_all_reduce(x, 10, PG_F32, PG_SUM), &outcome->error), "good",
                       outcome);
    expect_failure(group, mine, outcome);
}

static void play_mismatch(Collective common, Collective odd, const char *parts) {
    Mismatch m = {common, odd};
    char text[400];
    snprintf(text, sizeof text, "collective %d: ranks disagree|%s", GOOD + 1, parts);
    play_failure(3, 60, mismatch, &m, text);
}

static void row_81_mismatched_shape(void **state) {
    (void)state;
    play_mismatch(pg_all_reduce(NULL, 10, PG_F32, PG_SUM), pg_all_reduce(NULL, 9, PG_F32, PG_SUM),
                  "rank 0 runs all_reduce(F32, 10, sum)|rank 2 runs all_reduce(F32, 9, sum)|"
                  "; they differ in size");
}

static void row_81_mismatched_operation(void **state) {
    (void)state;
    play_mismatch(pg_all_reduce(NULL, 10, PG_F32, PG_SUM), pg_reduce(NULL, 10, PG_F32, PG_SUM, 1),
                  "rank 0 runs all_reduce(F32, 10, sum)|rank 2 runs reduce(F32, 10, sum, root 1)|"
                  "; they differ in operation, root");
}

static void row_81_mismatched_type(void **state) {
    (void)state;
    play_mismatch(pg_all_reduce(NULL, 10, PG_F32, PG_SUM), pg_all_reduce(NULL, 10, PG_I32, PG_MAX),
                  "; they differ in type, reduction");
}

static void hangs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 0;
    if (pg_rank(group) == 1) wait_for_failure(group, outcome);
    expect_failure(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), outcome);
}

static void row_81_collective_hang(void **state) {
    (void)state;
    play_failure(2, 1.0, hangs, NULL,
                 "collective 1 all_reduce(F32, 1, sum): rank 1 did not arrive within 1.0 s");
}

// ---- 82: sequence numbers -------------------------------------------------------------------

static void count(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const int members[] = {0, 1};
    int rank = pg_rank(group);
    float x[8] = {0};
    Error *err = &outcome->error;
    if (pg_sequence(group) != 0) problem(outcome, "a new group is at %ju", pg_sequence(group));
    expect_success(pg_run(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), err), "1", outcome);
    expect_success(pg_run(group, pg_broadcast(x, 1, PG_F32, 1), err), "2", outcome);
    PgWork *work = pg_start(group, pg_barrier(), err); // counted when it is enqueued
    if (!work || pg_sequence(group) != 3) problem(outcome, "after the third");
    if (work) expect_success(pg_work_wait(work, NULL, NULL, err), "3", outcome);
    ProcessGroup *part = pg_new_subgroup(group, members, 2, err);
    if (pg_sequence(group) != 4) problem(outcome, "a new group is a collective of its parent");
    for (int i = 0; part && i < 7; i++)
        expect_success(pg_run(part, pg_barrier(), err), "part", outcome);
    if (part && pg_sequence(part) != 7) problem(outcome, "the subgroup: %ju", pg_sequence(part));
    if (rank == 0) expect_success(pg_run(group, pg_send(x, 1, PG_F32, 1), err), "send", outcome);
    if (rank == 1) expect_success(pg_run(group, pg_recv(x, 1, PG_F32, 0), err), "recv", outcome);
    if (pg_sequence(group) != 4) problem(outcome, "at last: %ju", pg_sequence(group));
    pg_close(part);
}

static void row_82_sequence_numbers(void **state) {
    (void)state;
    play_both(3, 60, count);
}

// ---- 83: ranks that end ---------------------------------------------------------------------

typedef enum Ending { CLEAN_EXIT, EXIT_3, ABORTS, GETS_KILL, GETS_TERM, ENDINGS } Ending;

static void end_as(Ending ending, Outcome *outcome) {
    const int signals[ENDINGS] = {[ABORTS] = SIGABRT, [GETS_KILL] = SIGKILL, [GETS_TERM] = SIGTERM};
    outcome->ends = ending == EXIT_3 ? W_EXITCODE(3, 0) : W_EXITCODE(0, signals[ending]);
    if (signals[ending]) raise(signals[ending]);
    _exit(ending == EXIT_3 ? 3 : 0);
}

// The error must be reported before the timeout, a minute: a timeout has another message.
static void one_ends(ProcessGroup *group, const void *argument, Outcome *outcome) {
    outcome->number = getpid();
    expect_success(pg_run(group, pg_barrier(), &outcome->error), "barrier", outcome);
    if (pg_rank(group) == 2) end_as(*(const Ending *)argument, outcome);
    expect_failure(group, pg_barrier(), outcome);
}

static void row_83_survivors_are_told(void **state) {
    (void)state;
    if (UNDER_TSAN) skip();
    for (Ending ending = CLEAN_EXIT; ending < ENDINGS; ending++) {
        Outcome outcomes[RANKS_MAX];
        char text[100];
        play_ranks(AS_PROCESSES, 3, 60, one_ends, &ending, outcomes);
        snprintf(text, sizeof text, "collective 2 barrier: rank 2 (pid %ld) is gone",
                 outcomes[2].number);
        check_messages(outcomes, 2, text);
    }
}

// ---- 86: barriers ---------------------------------------------------------------------------

// A barrier returns only after all ranks have entered it.
static void come_late(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Outcome *first = outcome - pg_rank(group);
    for (long round = 1; round <= 20; round++) {
        sleep_ms((pg_rank(group) * 7 + round * 3) % 10);
        outcome->number = round;
        expect_success(pg_run(group, pg_barrier(), &outcome->error), "barrier", outcome);
        for (int r = 0; r < pg_size(group); r++)
            if (first[r].number < round)
                problem(outcome, "left round %ld before rank %d", round, r);
        expect_success(pg_run(group, pg_barrier(), &outcome->error), "between", outcome);
    }
}

static void row_86_barrier(void **state) {
    (void)state;
    play_both(4, 60, come_late);
}

static void misses_barrier(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    if (pg_rank(group) == 2) wait_for_failure(group, outcome);
    expect_failure(group, pg_barrier(), outcome);
}

static void row_86_barrier_timeout_global(void **state) {
    (void)state;
    play_failure(3, 1.0, misses_barrier, NULL,
                 "collective 1 barrier: rank 2 did not arrive within 1.0 s");
}

static void misses_in_group(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const int members[] = {0, 2};
    ProcessGroup *part = pg_new_subgroup(group, members, 2, &outcome->error);
    expect_success(outcome->error.status, "new group", outcome);
    if (pg_rank(group) == 2) wait_for_failure(group, outcome);
    if (part) expect_failure(part, pg_barrier(), outcome);
    pg_close(part);
}

static void row_86_barrier_timeout_group(void **state) {
    (void)state;
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        Outcome outcomes[RANKS_MAX];
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        play_ranks(mode, 3, 1.0, misses_in_group, NULL, outcomes);
        must_contain(outcomes[0].error.message,
                     "collective 1 barrier: rank 1 (global 2) did not arrive within 1.0 s");
        assert_string_equal(outcomes[2].error.message, outcomes[0].error.message);
        assert_string_equal(outcomes[1].error.message, "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_80_monitored_barrier_passes),
        cmocka_unit_test(row_80_monitored_barrier_one_missing),
        cmocka_unit_test(row_80_monitored_barrier_failure_order),
        cmocka_unit_test(row_80_monitored_barrier_wait_all_ranks),
        cmocka_unit_test(row_80_monitored_barrier_rank_0_timeout),
        cmocka_unit_test(row_80_monitored_barrier_allreduce_hang),
        cmocka_unit_test(row_80_monitored_barrier_subgroup),
        cmocka_unit_test(row_80_monitored_barrier_first_words_count),
        cmocka_unit_test(row_81_mismatched_shape),
        cmocka_unit_test(row_81_mismatched_operation),
        cmocka_unit_test(row_81_mismatched_type),
        cmocka_unit_test(row_81_collective_hang),
        cmocka_unit_test(row_82_sequence_numbers),
        cmocka_unit_test(row_83_survivors_are_told),
        cmocka_unit_test(row_86_barrier),
        cmocka_unit_test(row_86_barrier_timeout_global),
        cmocka_unit_test(row_86_barrier_timeout_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
