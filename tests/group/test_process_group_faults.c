/* test_process_group_faults.c: errors of a process group whose ranks disagree, are absent, die or
 * leave, or pass invalid arguments. All ranks must report the same message, which names the rank at
 * fault, and the group must stay broken.
 *
 * That a dead rank is noticed at once is visible in the message: a timeout has another one.
 */
#include "tests/rigs/rank_failures.h"

#include <signal.h>
#include <sys/prctl.h>

#include "common/base/memory.h"
#include "ddp/group/shm/shm_internal.h"

// ---- disagreement ---------------------------------------------------------------------------

typedef struct Quarrel {
    const char *name;
    Collective common, odd; // the last rank runs `odd`
    const char *says;
    bool async, shared;
} Quarrel;

static float scratch[4096]; // [W, count] at most; only its address matters

static void quarrel(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Quarrel *q = argument;
    float *own = memory_zalloc(sizeof scratch);
    float *buffer = q->shared ? pg_shared_alloc(group, sizeof scratch, &outcome->error) : own;
    Collective mine = pg_rank(group) == pg_size(group) - 1 ? q->odd : q->common;
    mine.send = mine.send ? buffer : NULL;
    mine.receive = mine.receive ? buffer : NULL;
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "the barrier failed");
    if (q->async) {
        PgWork *work = pg_start(group, mine, &outcome->error);
        if (!work || pg_work_wait(work, NULL, NULL, &outcome->error) == 0)
            problem(outcome, "%s succeeded", q->name);
        check_sticky(group, outcome);
    } else {
        expect_failure(group, mine, outcome);
    }
    free(own);
}

static void test_disagreement(Mode mode) {
    float *x = scratch;
    const Quarrel quarrels[] = {
        {"kind", pg_all_reduce(x, 1000, PG_F32, PG_SUM), pg_broadcast(x, 1000, PG_F32, 0),
         "collective 2: ranks disagree|rank 0 runs all_reduce(F32, 1000, sum)|"
         "rank 2 runs broadcast(F32, 1000, root 0)",
         false, false},
        {"count", pg_all_reduce(x, 1000, PG_F32, PG_AVG), pg_all_reduce(x, 999, PG_F32, PG_AVG),
         "all_reduce(F32, 1000, avg)|rank 2 runs all_reduce(F32, 999, avg)", true, false},
        {"zero", pg_all_reduce(x, 1, PG_F32, PG_SUM), pg_all_reduce(x, 0, PG_F32, PG_SUM),
         "rank 2 runs all_reduce(F32, 0, sum)", false, false},
        {"dtype", pg_all_reduce(x, 8, PG_F32, PG_SUM), pg_all_reduce(x, 8, PG_I32, PG_SUM),
         "rank 2 runs all_reduce(I32, 8, sum)", false, false},
        {"op", pg_reduce_scatter(x, x, 8, PG_F32, PG_SUM),
         pg_reduce_scatter(x, x, 8, PG_F32, PG_MAX), "reduce_scatter(F32, 8, max)", false, false},
        {"root", pg_gather(x, x, 8, PG_F64, 0), pg_gather(x, x, 8, PG_F64, 2),
         "gather(F64, 8, root 0)|gather(F64, 8, root 2)", true, false},
        {"barrier", pg_all_gather(x, x, 8, PG_U8), pg_barrier(),
         "rank 0 runs all_gather(U8, 8), rank 2 runs barrier", false, false},
        {"shared", pg_all_reduce(x, 4000, PG_F32, PG_SUM), pg_all_reduce(x, 3999, PG_F32, PG_SUM),
         "collective 3: ranks disagree|rank 2 runs all_reduce(F32, 3999, sum)", true, true}};
    for (size_t i = 0; i < sizeof quarrels / sizeof *quarrels; i++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(mode, 3, 60, quarrel, &quarrels[i], outcomes);
        check_messages(outcomes, 3, quarrels[i].says);
    }
}

// The same collectives, two of them in another order on rank 1.
static void wrong_order(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x[20] = {0};
    PgWork *works[2] = {NULL};
    bool swapped = pg_rank(group) == 1;
    for (int i = 0; i < 2; i++)
        works[i] = pg_start(group, pg_all_reduce(x, (i == 1) != swapped ? 20 : 10, PG_F32, PG_SUM),
                            &outcome->error);
    for (int i = 0; i < 2; i++)
        if (works[i] && pg_work_wait(works[i], NULL, NULL, &outcome->error) == 0)
            problem(outcome, "work %d succeeded", i);
    check_sticky(group, outcome);
}

static void test_wrong_order(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 2, 60, wrong_order, NULL, outcomes);
    check_messages(outcomes, 2, "collective 1: |(F32, 10, sum), rank 1 runs|(F32, 20, sum)");
}

static void different_alloc(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    size_t bytes = pg_rank(group) == 1 ? 5000 : 4096;
    if (pg_shared_alloc(group, bytes, &outcome->error)) problem(outcome, "got memory");
    check_sticky(group, outcome);
}

static void test_different_alloc(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 2, 60, different_alloc, NULL, outcomes);
    check_messages(outcomes, 2, "shared_alloc(4096 bytes)|rank 1 runs shared_alloc(5000 bytes)");
}

static void different_message(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x[8] = {0};
    if (pg_rank(group) == 0 && pg_run(group, pg_send(x, 8, PG_F32, 1), &outcome->error) != 0)
        problem(outcome, "a short send waits for no receiver: %s", outcome->error.message);
    if (pg_rank(group) == 1)
        expect_failure(group, pg_recv(x, 7, PG_F32, 0), outcome);
    else
        expect_failure(group, pg_barrier(), outcome);
}

static void test_different_message(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 3, 60, different_message, NULL, outcomes);
    check_messages(outcomes, 3,
                   "rank 0 runs send(F32, 8, to rank 1), "
                   "rank 1 runs recv(F32, 7, from rank 0)");
}

// ---- absent ranks ---------------------------------------------------------------------------

// Ranks 1 and 3 reach collective 3 only after its deadline.
static void absent(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 0;
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "barrier");
    if (pg_run(group, pg_broadcast(&x, 1, PG_F32, 0), &outcome->error) != 0)
        problem(outcome, "bcast");
    if (pg_rank(group) % 2) wait_for_failure(group, outcome);
    expect_failure(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), outcome);
}

static void test_absent(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 4, 1.5, absent, NULL, outcomes);
    check_messages(outcomes, 4,
                   "collective 3 all_reduce(F32, 1, sum): rank 1, 3 did not arrive within 1.5 s|"
                   "rank 1 last finished 2 broadcast|rank 3 last finished 2 broadcast");
}

// Rank `rank` receives without a sender, or sends until the channel is full; the other rank does
// nothing.
typedef struct Unanswered {
    bool sends;
    int rank;
} Unanswered;

static void unanswered(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Unanswered *u = argument;
    const int peer = 1 - u->rank;
    size_t bytes = 1 << 20;
    unsigned char *x = memory_zalloc(bytes);
    Collective call = u->sends ? pg_send(x, bytes, PG_U8, peer) : pg_recv(x, bytes, PG_U8, peer);
    if (pg_rank(group) == u->rank)
        expect_failure(group, call, outcome);
    else
        wait_for_failure_of(group, u->rank, outcome);
    free(x);
}

static void test_unanswered(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    for (int way = 0; way < 4; way++) {
        const Unanswered u = {.sends = way & 1, .rank = way / 2};
        char says[200];
        play_ranks(mode, 2, 0.3, unanswered, &u, outcomes);
        snprintf(says, sizeof says,
                 "%s rank %d): rank %d did not arrive within 0.3 s; rank %d has finished no coll",
                 u.sends ? "send(U8, 1048576, to" : "recv(U8, 1048576, from", 1 - u.rank,
                 1 - u.rank, 1 - u.rank);
        must_contain(outcomes[u.rank].error.message, says);
    }
}

// A rank closes its group: completed calls stay completed, later calls of the others fail at once.
static void leaves(ProcessGroup *group, const void *argument, Outcome *outcome) {
    float *x = pg_shared_alloc(group, 4096, &outcome->error);
    if (pg_run(group, pg_all_reduce(x, 1024, PG_F32, PG_SUM), &outcome->error) != 0)
        problem(outcome, "all_reduce: %s", outcome->error.message);
    if (pg_rank(group) == *(const int *)argument) return;
    expect_failure(group, pg_all_reduce(x, 1024, PG_F32, PG_SUM), outcome);
    x[1023] = 1; // this rank's memory stays mapped
}

static void test_leaves(Mode mode) {
    for (int rank = 0; rank <= 2; rank += 2) {
        Outcome outcomes[RANKS_MAX];
        char says[120];
        play_ranks(mode, 3, 60, leaves, &rank, outcomes);
        snprintf(says, sizeof says,
                 "collective 3 all_reduce(F32, 1024, sum): rank %d has closed its group;|"
                 "last finished 2 all_reduce",
                 rank);
        check_messages(rank == 0 ? outcomes + 1 : outcomes, 2, says);
    }
}

// Rank 0 is absent after a call without a result; the others name that call as its last.
static void away_after(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Error err = {0};
    const bool subgroup = *(const bool *)argument;
    ProcessGroup *mine = subgroup ? pg_new_subgroup(group, (int[]){0}, 1, &err) : NULL;
    if (!subgroup) (void)pg_shared_alloc(group, 8, &err);
    if (pg_rank(group) == 0) wait_for_failure_of(group, 1, outcome);
    expect_failure(group, pg_barrier(), outcome);
    pg_close(mine);
}

static void test_away_after(Mode mode) {
    for (int i = 0; i < 2; i++) {
        Outcome outcomes[RANKS_MAX];
        const bool subgroup = i;
        play_ranks(mode, 2, 0.3, away_after, &subgroup, outcomes);
        check_messages(outcomes, 2,
                       subgroup ? "collective 2 barrier: rank 0 did not arrive within 0.3 s; "
                                  "rank 0 last finished 1 new_subgroup"
                                : "collective 2 barrier: rank 0 did not arrive within 0.3 s; "
                                  "rank 0 last finished 1 shared_alloc");
    }
}

// The size overflows when it is multiplied by the ranks.
static void too_much_memory(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    if (pg_shared_alloc(group, SIZE_MAX / 4, &outcome->error)) problem(outcome, "got memory");
    check_sticky(group, outcome);
}

static void test_too_much_memory(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 3, 60, too_much_memory, NULL, outcomes);
    check_messages(outcomes, 3, "shared memory: the size overflows");
}

// ---- dead ranks (processes only) ------------------------------------------------------------

typedef enum Moment { WHILE_AWAY, WHILE_WAITING, WITH_WORKS } Moment;

static void dies(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Moment moment = *(const Moment *)argument;
    float *x = pg_shared_alloc(group, 1 << 20, &outcome->error), y = 0;
    Collective sum = pg_all_reduce(x, 1000, PG_F32, PG_SUM);
    outcome->number = getpid();
    if (pg_rank(group) == 2) {
        if (moment == WITH_WORKS) pg_start(group, sum, &outcome->error);
        // Killed after half a second while blocked in a receive that has no sender.
        if (moment == WHILE_WAITING && fork() == 0) {
            sleep_ms(500);
            kill((pid_t)outcome->number, SIGKILL);
            _exit(0);
        }
        if (moment == WHILE_WAITING) pg_run(group, pg_recv(&y, 1, PG_F32, 0), &outcome->error);
        raise(SIGKILL);
    }
    while (pg_run(group, sum, &outcome->error) == 0) continue; // WITH_WORKS, one may succeed
    check_sticky(group, outcome);
}

static void test_dies(Mode mode) {
    if (mode == AS_THREADS) skip(); // a thread cannot die alone
    for (int m = WHILE_AWAY; m <= WITH_WORKS; m++) {
        Moment moment = (Moment)m;
        Outcome outcomes[RANKS_MAX];
        char who[64];
        play_ranks(mode, 3, 60, dies, &moment, outcomes);
        snprintf(who, sizeof who, "sum): rank 2 (pid %ld) is gone;", outcomes[2].number);
        check_messages(outcomes, 2, who);
    }
}

// A process's name may contain parentheses: its state in /proc follows the last one, and "Z" in the
// name does not make it a zombie.
static void odd_name(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 1;
    if (pg_rank(group) == 1) {
        prctl(PR_SET_NAME, "late) Z (dead");
        sleep_ms(400); // the other rank checks several times whether it is alive
    }
    if (pg_run(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
}

static void test_odd_name(Mode mode) {
    if (mode == AS_PROCESSES) play_ranks(mode, 2, 60, odd_name, NULL, NULL);
}

// ---- arguments ------------------------------------------------------------------------------

static void bad_argument(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Quarrel *q = argument;
    Collective right = pg_barrier();
    expect_failure(group, pg_rank(group) == 1 ? q->odd : right, outcome);
}

static void test_bad_argument(Mode mode) {
    float *x = scratch;
    const Quarrel faults[] = {
        {.odd = pg_broadcast(x, 8, PG_F32, 2), .says = "rank 1 of 2: broadcast(F32, 8, root 2): t"},
        {.odd = pg_broadcast(x, 8, PG_F32, -1), .says = "there is no such rank"},
        {.odd = pg_send(x, 8, PG_F32, 1), .says = "a rank cannot send to itself"},
        {.odd = pg_all_reduce(x, 8, PG_I64, PG_AVG), .says = "avg is for F32 and F64"},
        {.odd = pg_all_reduce(NULL, 8, PG_F32, PG_SUM), .says = "buffer is NULL"},
        {.odd = pg_all_gather(x, NULL, 8, PG_F32), .says = "the receive buffer is NULL"},
        {.odd = pg_all_gather(x, x, SIZE_MAX / 4, PG_F32), .says = "the size overflows"},
        {.odd = pg_all_reduce(x, 8, (PgType)9, PG_SUM), .says = "there is no such thing"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        Outcome outcomes[RANKS_MAX];
        play_ranks(mode, 2, 60, bad_argument, &faults[i], outcomes);
        check_messages(outcomes, 2, faults[i].says);
    }
}

static void too_many(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 0;
    PgWork *works[PG_MAX_WORKS];
    for (int i = 0; i < PG_MAX_WORKS; i++)
        if (!(works[i] = pg_start(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), &outcome->error)))
            problem(outcome, "work %d: %s", i, outcome->error.message);
    for (int i = 0; i < PG_MAX_WORKS / 2; i++) // half of the works are freed and reused
        if (pg_work_wait(works[i], NULL, NULL, &outcome->error) != 0)
            problem(outcome, "wait %d", i);
    for (int i = 0; i < PG_MAX_WORKS / 2; i++)
        if (!pg_start(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), &outcome->error))
            problem(outcome, "again %d: %s", i, outcome->error.message);
    if (pg_start(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), &outcome->error))
        problem(outcome, "one more than PG_MAX_WORKS");
}

static void test_too_many(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 1, 60, too_many, NULL, outcomes);
    must_contain(outcomes[0].error.message, "more than 1024 collectives are outstanding");
}

// ---- pg_abort -----------------------------------------------------------------------------

// Rank 1 aborts while the others wait for it. Later errors do not replace the first.
static void gives_up(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float x = 0;
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "the barrier failed");
    if (pg_rank(group) != 1) {
        expect_failure(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), outcome);
    } else {
        Error own = {0};
        error_set(&own, STATUS_FAILED, "the loss is nan");
        if (!pg_abort(group, &own)) problem(outcome, "the group was not sound");
        expect_failure(group, pg_barrier(), outcome);
    }
    Error late = {0};
    error_set(&late, STATUS_FAILED, "another error");
    if (pg_abort(group, &late)) problem(outcome, "a broken group was broken again");
    check_sticky(group, outcome);
}

static void test_gives_up(Mode mode) {
    Outcome outcomes[RANKS_MAX];
    play_ranks(mode, 3, 60, gives_up, NULL, outcomes);
    check_messages(outcomes, 3, "rank 1: the loss is nan");
}

// Two ranks abort at the same time: one of the two messages becomes the error of all, and remains
// it.
enum { TOGETHER_ROUNDS = 2000 };

typedef struct Together {
    SyncWord rounds; // rounds begun
    SyncWord done[2];
    ShmControl *control;
    uint32_t seen[2]; // per rank: the rank whose message counted, after its own abort
} Together;

static void fail_together(Together *t, int rank, uint32_t round) {
    PgShm shm = {.control = t->control, .rank = rank, .world = 2};
    char words[FAILURE_MAX];
    snprintf(words, sizeof words, "rank %d in round %u, %0*d", rank, round, FAILURE_MAX / 2, 0);
    sync_wait(&t->rounds, round, NULL, clock_ns() + 60000000000u, SYNC_SPINS);
    shm_abort(&shm, words);
    t->seen[rank] = sync_load(&t->control->aborted);
    sync_store(&t->done[rank], round);
}

static void *fail_as_rank_1(void *argument) {
    for (uint32_t round = 1; round <= TOGETHER_ROUNDS; round++) fail_together(argument, 1, round);
    return NULL;
}

static void test_fail_together(Mode mode) {
    (void)mode;
    pthread_t other;
    Together t = {.control = memory_zalloc(sizeof(ShmControl) + 2 * sizeof(RankSlot))};
    assert_int_equal(pthread_create(&other, NULL, fail_as_rank_1, &t), 0);
    for (uint32_t round = 1; round <= TOGETHER_ROUNDS; round++) {
        sync_store(&t.control->aborted, 0);
        sync_store(&t.rounds, round);
        fail_together(&t, 0, round);
        sync_wait(&t.done[1], round, NULL, clock_ns() + 60000000000u, SYNC_SPINS);
        Error words = {0};
        char own[32];
        assert_int_equal(t.seen[0], t.seen[1]);
        PgShm shm = {.control = t.control, .rank = 0, .world = 2};
        assert_int_equal(shm_check_abort(&shm, &words), -1);
        snprintf(own, sizeof own, "rank %u in round %u,", t.seen[0] - 1, round);
        must_contain(words.message, own);
    }
    pthread_join(other, NULL);
    free(t.control);
}

// ---- the program --------------------------------------------------------------------------

#define TEST(NAME)                          \
    static void run_##NAME(void **state) {  \
        test_##NAME(*(const Mode *)*state); \
    }

TEST(disagreement)
TEST(wrong_order)
TEST(different_alloc)
TEST(different_message)
TEST(absent)
TEST(unanswered)
TEST(leaves)
TEST(away_after)
TEST(too_much_memory)
TEST(dies)
TEST(odd_name)
TEST(bad_argument)
TEST(too_many)
TEST(gives_up)
TEST(fail_together)

// ---- after pg_close -------------------------------------------------------------------------

// Every call on a closed group fails with the same error, also with invalid arguments. call: index
// of the call, from 0.
static bool closed_refuses(ProcessGroup *group, int call, Error *err) {
    float x[3] = {0};
    const Error cause = {.status = STATUS_FAILED, .message = "late"};
    if (call == 0) return pg_run(group, pg_all_reduce(x, 3, PG_F32, PG_SUM), err) != 0;
    if (call == 1) return pg_run(group, pg_broadcast(x, 3, PG_F32, 7), err) != 0;
    if (call == 2) return !pg_start(group, pg_barrier(), err);
    if (call == 3) return !pg_shared_alloc(group, 8, err);
    if (call == 4) return !pg_new_subgroup(group, (int[]){0}, 1, err);
    if (call == 5) return pg_monitored_barrier(group, 1, true, err) != 0;
    if (call == 6) return pg_write_flight(group, "/nowhere", err) != 0;
    return !pg_abort(group, &cause) && pg_check_sound(group, err) != 0;
}

static void a_closed_group_refuses_every_call(void **state) {
    (void)state;
    for (int world = 1; world < 4; world += 2) {
        const PgOptions options = {.timeout_s = 5};
        ProcessGroup *groups[3];
        Error err = {0};
        assert_int_equal(pg_shm_threads(world, &options, groups, &err), 0);
        for (int r = world - 1; r >= 0; r--) pg_close(groups[r]);
        for (int call = 0; call < 8; call++) {
            err = (Error){0};
            assert_true(closed_refuses(groups[0], call, &err));
            assert_string_equal(err.message,
                                "rank 0: the group is closed: a call after pg_close(group)");
        }
        assert_null(pg_peer_memory(groups[0], &err, 0));
        assert_true(pg_rank(groups[world - 1]) == world - 1 && pg_size(groups[0]) == world);
    }
}

int main(void) {
    Mode threads = AS_THREADS, processes = AS_PROCESSES;
    Mode *modes[] = {&processes, &threads};
    int failed = 0;
    for (int m = UNDER_TSAN; m < 2; m++) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(run_disagreement, modes[m]),
            cmocka_unit_test_prestate(run_wrong_order, modes[m]),
            cmocka_unit_test_prestate(run_different_alloc, modes[m]),
            cmocka_unit_test_prestate(run_different_message, modes[m]),
            cmocka_unit_test_prestate(run_absent, modes[m]),
            cmocka_unit_test_prestate(run_unanswered, modes[m]),
            cmocka_unit_test_prestate(run_leaves, modes[m]),
            cmocka_unit_test_prestate(run_away_after, modes[m]),
            cmocka_unit_test_prestate(run_too_much_memory, modes[m]),
            cmocka_unit_test_prestate(run_dies, modes[m]),
            cmocka_unit_test(a_closed_group_refuses_every_call),
            cmocka_unit_test_prestate(run_odd_name, modes[m]),
            cmocka_unit_test_prestate(run_bad_argument, modes[m]),
            cmocka_unit_test_prestate(run_too_many, modes[m]),
            cmocka_unit_test_prestate(run_gives_up, modes[m]),
            cmocka_unit_test_prestate(run_fail_together, modes[m])};
        failed += cmocka_run_group_tests_name(m == 0 ? "processes" : "threads", tests, NULL, NULL);
    }
    return failed != 0;
}
