/* test_backend_calls.c: the group's part of one call (arguments, numbering, deadline, failure) with
 * a simulated backend, as rank 0 of three. Several calls: test_backend.c.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/play_backend.h"

#include "common/base/clock.h"
#include "ddp/group/group_internal.h"

// ---- calls --------------------------------------------------------------------------------------

// Fields that a collective does not use are 0: ranks compare all fields (root), and totals are kept
// by bucket number.
static void constructors_fill_every_field(void **state) {
    (void)state;
    float a[1], b[1];
    const struct Case {
        Collective made, fields;
    } CASES[] = {
        {pg_all_reduce(a, 2, PG_F64, PG_MAX), {PG_ALL_REDUCE, a, a, 2, PG_F64, PG_MAX, 0, 0}},
        {pg_broadcast(a, 2, PG_I32, 3), {PG_BROADCAST, a, a, 2, PG_I32, PG_SUM, 3, 0}},
        {pg_reduce(a, 2, PG_I64, PG_MIN, 3), {PG_REDUCE, a, a, 2, PG_I64, PG_MIN, 3, 0}},
        {pg_all_gather(a, b, 2, PG_U8), {PG_ALL_GATHER, a, b, 2, PG_U8, PG_SUM, 0, 0}},
        {pg_gather(a, b, 2, PG_F16, 3), {PG_GATHER, a, b, 2, PG_F16, PG_SUM, 3, 0}},
        {pg_scatter(a, b, 2, PG_BF16, 3), {PG_SCATTER, a, b, 2, PG_BF16, PG_SUM, 3, 0}},
        {pg_reduce_scatter(a, b, 2, PG_F32, PG_AVG),
         {PG_REDUCE_SCATTER, a, b, 2, PG_F32, PG_AVG, 0, 0}},
        {pg_send(a, 2, PG_F64, 3), {PG_SEND, a, NULL, 2, PG_F64, PG_SUM, 3, 0}},
        {pg_recv(a, 2, PG_F64, 3), {PG_RECV, NULL, a, 2, PG_F64, PG_SUM, 3, 0}},
        {pg_barrier(), {PG_BARRIER, NULL, NULL, 0, PG_U8, PG_SUM, 0, 0}},
        {pg_of_bucket(pg_barrier(), 6), {PG_BARRIER, NULL, NULL, 0, PG_U8, PG_SUM, 0, 7}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Collective *c = &CASES[i].made, *want = &CASES[i].fields;
        assert_int_equal(c->kind, want->kind);
        assert_ptr_equal(c->send, want->send);
        assert_ptr_equal(c->receive, want->receive);
        assert_true(c->count == want->count && c->type == want->type && c->op == want->op);
        assert_true(c->root == want->root && c->bucket == want->bucket);
    }
}

static void calls_are_numbered_and_have_a_deadline(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    float x[3] = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    const uint64_t before = clock_ns();
    assert_int_equal(pg_run(group, pg_all_reduce(x, 3, PG_F32, PG_SUM), &err), 0);
    assert_in_range(play.last.begin_ns, before, clock_ns());
    assert_in_range(play.last.issued_ns, before, play.last.begin_ns);
    assert_true(play.last.deadline_ns - play.last.begin_ns == TIMEOUT_S * 1000000000ull);
    assert_true(play.last.timeout_s == TIMEOUT_S);
    assert_int_equal(pg_run(group, pg_send(x, 3, PG_F32, 1), &err), 0); // has no sequence number
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    diary_is(&play, "run 1; run 0; run 2; ");
    assert_int_equal(pg_sequence(group), 2);
    assert_int_equal(pg_moved_bytes(group), 300);
    pg_count_moved(group, 5);
    assert_int_equal(pg_moved_bytes(group), 305);
    assert_string_equal(pg_backend(group), "play");
    pg_close(group);
    diary_is(&play, "close; ");
}

// In a group of one rank, collectives in place are the identity and skip the backend.
static void a_single_rank_does_not_reach_the_backend(void **state) {
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        Error err = {0};
        float x[1] = {0};
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 1);
        assert_int_equal(pg_run(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), &err), 0);
        assert_int_equal(pg_run(group, pg_broadcast(x, 1, PG_F32, 0), &err), 0);
        assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
        PgWork *work = pg_start(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), &err);
        assert_int_equal(pg_work_wait(work, NULL, NULL, &err), 0);
        diary_is(&play, "");
        float y[1];
        assert_int_equal(pg_run(group, pg_all_gather(x, y, 1, PG_F32), &err), 0);
        diary_is(&play, queued ? "issue; run 5; " : "run 5; ");
        pg_close(group);
    }
}

// Calls that reach the backend, in groups of one or three ranks, with real or dry-run devices.
static void calls_that_reach_the_backend(void **state) {
    (void)state;
    static double x[3], y[3];
    enum { ALWAYS, NOT_ALONE, NOT_DRY, NEITHER }; // NEITHER: not alone and not in a dry run
    const struct Case {
        Collective collective;
        int reaches;
    } CASES[] = {
        {pg_all_reduce(x, 1, PG_F32, PG_SUM), NEITHER},
        {pg_all_reduce(x, 1, PG_F64, PG_SUM), NOT_ALONE},
        {pg_all_reduce(x, 1, PG_U8, PG_MAX), NOT_ALONE},
        {pg_broadcast(x, 1, PG_F32, 0), NEITHER},
        {pg_broadcast(x, 1, PG_U8, 0), NEITHER},
        {pg_broadcast(x, 1, PG_I64, 0), NOT_ALONE},
        {pg_reduce(x, 1, PG_F32, PG_SUM, 0), NEITHER},
        {pg_reduce(x, 1, PG_F64, PG_SUM, 0), NOT_ALONE},
        {pg_barrier(), NOT_ALONE},
        {pg_all_gather(x, y, 1, PG_F32), NOT_DRY},
        {pg_all_gather(x, y, 1, PG_U8), ALWAYS},
        {pg_gather(x, y, 1, PG_F64, 0), ALWAYS},
        {pg_scatter(x, y, 1, PG_F64, 0), ALWAYS},
        {pg_reduce_scatter(x, y, 1, PG_F32, PG_SUM), NOT_DRY},
        {pg_reduce_scatter(x, y, 1, PG_F64, PG_SUM), ALWAYS},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int way = 0; way < 4; way++) {
            Play play;
            Error err = {0};
            play_open(&play);
            const bool alone = way & 1, dry = way & 2;
            const PgOptions options = {.timeout_s = TIMEOUT_S, .dry = dry};
            ProcessGroup *group = pg_new(&SIMPLE, &play, 0, alone ? 1 : 3, &options, &err);
            CHECK_OK(pg_run(group, CASES[i].collective, &err) == 0, err);
            const bool reaches = !(alone && (CASES[i].reaches & NOT_ALONE)) &&
                                 !(dry && (CASES[i].reaches & NOT_DRY));
            diary_is(&play, reaches ? "run 1; " : "");
            pg_close(group);
        }
}

// Ranks access each other's memory directly, except over an emulated link or in a dry run.
static void shared_memory_is_counted_and_reached(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        Play play;
        Error err = {0};
        play_open(&play);
        const PgOptions options = {.timeout_s = TIMEOUT_S, .dry = way == 1};
        ProcessGroup *group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
        if (way == 2) pg_emulate_link(group, (DeviceLink *)&play); // the link is never read
        assert_ptr_equal(pg_shared_alloc(group, 12, &err), play.memory);
        assert_ptr_equal(pg_shared_alloc(group, 5, &err), play.memory);
        diary_is(&play,
                 way == 1 ? "allocate 12 dry; allocate 5 dry; " : "allocate 12; allocate 5; ");
        assert_int_equal(pg_totals(group).shared_bytes, 17);
        for (int r = 0; r < 3; r++)
            assert_ptr_equal(pg_peer_memory(group, play.memory, r), way ? NULL : play.memory + r);
        play.fails_in = 1;
        assert_null(pg_shared_alloc(group, 7, &err));
        assert_string_equal(err.message, "no memory");
        assert_int_equal(pg_totals(group).shared_bytes, 17);
        assert_int_equal(pg_check_sound(group, &err), -1);
        pg_close(group);
    }
}

typedef struct Seen {
    int begins, fails, closes;
    uint64_t sequence;
    char name[32];
} Seen;

static void begins(void *context, uint64_t sequence, const char *name) {
    Seen *seen = context;
    seen->begins++;
    seen->sequence = sequence;
    snprintf(seen->name, sizeof seen->name, "%s", name);
}
static void enters(void *context, const char *phase, uint64_t step) {
    Seen *seen = context;
    snprintf(seen->name, sizeof seen->name, "%s", phase);
    seen->sequence = step;
}
static void fails(void *context) {
    ((Seen *)context)->fails++;
}
static void closes(void *context) {
    ((Seen *)context)->closes++;
}

// The first failure breaks the group: later calls return its error and skip the backend.
static void the_first_failure_is_every_later_calls(void **state) {
    (void)state;
    Play play;
    Seen seen = {0};
    play_open(&play);
    Error err = {0};
    const PgOptions options = {
        .timeout_s = TIMEOUT_S,
        .observer = {.context = &seen, .begins = begins, .fails = fails, .close = closes}};
    ProcessGroup *group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
    CHECK_OK(group, err);
    play.fails_in = 2;
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    assert_true(seen.begins == 1 && seen.sequence == 1 && strcmp(seen.name, "barrier") == 0);
    assert_int_equal(pg_check_sound(group, &err), 0);
    assert_int_equal(pg_run(group, pg_barrier(), &err), -1);
    assert_string_equal(err.message, "a cable is loose");
    diary_is(&play, "run 1; run 2; abort: a cable is loose; ");
    for (int again = 0; again < 3; again++) {
        err = (Error){0};
        int status = again == 0   ? pg_run(group, pg_barrier(), &err)
                     : again == 1 ? pg_check_sound(group, &err)
                                  : (pg_start(group, pg_barrier(), &err) ? 0 : -1);
        assert_int_equal(status, -1);
        assert_string_equal(err.message, "a cable is loose");
    }
    const Error late = {.status = STATUS_FAILED, .message = "too late"};
    assert_false(pg_abort(group, &late));
    diary_is(&play, "");
    assert_true(seen.begins == 2 && seen.fails == 0); // `fails` reports only own failures
    pg_close(group);
    assert_int_equal(seen.closes, 1);

    group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
    assert_true(pg_abort(group, &late));
    assert_int_equal(seen.fails, 1);
    diary_is(&play, "close; abort: rank 0: too late; ");
    pg_close(group);
}

static void the_observer_is_told_the_phase(void **state) {
    (void)state;
    Play play;
    Seen seen = {0};
    Error err = {0};
    play_open(&play);
    pg_enter(NULL, "train", 1);
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    pg_enter(group, "train", 2); // no observer is set
    pg_close(group);
    const PgOptions options = {.timeout_s = TIMEOUT_S,
                               .observer = {.context = &seen, .enters = enters}};
    group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
    pg_enter(group, "evaluate", 3);
    assert_string_equal(seen.name, "evaluate");
    assert_int_equal(seen.sequence, 3);
    const Error cause = {.status = STATUS_FAILED, .message = "it ends"};
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0); // the observer lacks `begins`,
    assert_true(pg_abort(group, &cause));                   // nor `fails`,
    pg_close(group);                                        // nor `close`
}

// Each invalid argument, beside the nearest valid one.
static void faults_in_the_arguments_break_the_group(void **state) {
    (void)state;
    float x[9] = {0};
    const size_t most = SIZE_MAX / 16 / 3;
    const struct Case {
        Collective collective;
        const char *fault; // NULL: none
    } CASES[] = {
        {pg_broadcast(x, 1, PG_F32, 2), NULL},
        {pg_broadcast(x, 1, PG_F32, 3), "there is no such rank"},
        {pg_broadcast(x, 1, PG_F32, -1), "there is no such rank"},
        {pg_send(x, 1, PG_F32, 1), NULL},
        {pg_send(x, 1, PG_F32, 0), "a rank cannot send to itself"},
        {pg_recv(x, 1, PG_F32, 0), "a rank cannot send to itself"},
        {pg_recv(x, 1, PG_F32, 3), "there is no such rank"},
        {pg_reduce(x, 1, PG_F32, PG_SUM, 0), NULL},
        {pg_all_reduce(x, 1, PG_F64, PG_AVG), NULL},
        {pg_all_reduce(x, 1, PG_F32, PG_AVG), NULL},
        {pg_all_reduce(x, 1, PG_I32, PG_AVG), "avg is for F32 and F64"},
        {pg_all_reduce(x, 1, PG_I32, PG_MAX), NULL},
        {pg_all_reduce(x, 1, PG_BF16, PG_MIN), NULL},
        {pg_all_gather(x, x, most, PG_U8), NULL},
        {pg_all_gather(x, x, most + 1, PG_U8), "the size overflows"},
        {pg_all_reduce(NULL, 1, PG_F32, PG_SUM), "the send buffer is NULL"},
        {pg_all_reduce(NULL, 0, PG_F32, PG_SUM), NULL},
        {pg_all_gather(NULL, x, 1, PG_F32), "the send buffer is NULL"},
        {pg_all_gather(x, NULL, 1, PG_F32), "the receive buffer is NULL"},
        {pg_all_gather(NULL, NULL, 0, PG_F32), NULL},
        {pg_recv(NULL, 1, PG_F32, 1), "the receive buffer is NULL"},
        {pg_send(NULL, 1, PG_F32, 1), "the send buffer is NULL"},
        {pg_gather(x, NULL, 1, PG_F32, 1), NULL},
        {pg_gather(x, NULL, 1, PG_F32, 0), "the receive buffer is NULL"},
        {pg_scatter(NULL, x, 1, PG_F32, 1), NULL},
        {pg_scatter(NULL, x, 1, PG_F32, 0), "the send buffer is NULL"},
        {pg_reduce_scatter(NULL, x, 1, PG_F32, PG_SUM), "the send buffer is NULL"},
        {{.kind = (CollectiveKind)99}, "there is no such thing"},
        {{.kind = PG_BARRIER, .type = (PgType)99}, "there is no such thing"},
        {{.kind = PG_BARRIER, .op = (ReduceOp)99}, "there is no such thing"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        assert_int_equal(pg_run(group, CASES[i].collective, &err), CASES[i].fault ? -1 : 0);
        if (CASES[i].fault) check_message(&err, CASES[i].fault);
        if (CASES[i].fault) assert_memory_equal(play.diary, "abort: rank 0", 13);
        assert_int_equal(pg_check_sound(group, &err), CASES[i].fault ? -1 : 0);
        assert_int_equal(pg_sequence(group), CASES[i].fault ? 0 : play.last.sequence);
        pg_close(group);
    }
}

static void a_monitored_barrier_has_its_own_timeout(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    for (int all = 0; all < 2; all++) {
        assert_int_equal(pg_monitored_barrier(group, 3, all, &err), 0);
        assert_int_equal(play.last.monitor, all ? MONITOR_ALL : MONITOR_FIRST);
        assert_true(play.last.timeout_s == 3);
        assert_true(play.last.deadline_ns - play.last.begin_ns == 3000000000ull);
    }
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    assert_int_equal(play.last.monitor, MONITOR_NONE);
    assert_int_equal(pg_monitored_barrier(NULL, 3, true, &err), 0);
    assert_int_equal(pg_monitored_barrier(group, NAN, true, &err), -1);
    assert_int_equal(pg_check_sound(group, &err), 0); // the call failed, the group is sound
    err = (Error){0};
    assert_int_equal(pg_monitored_barrier(group, 0, true, &err), -1);
    assert_string_equal(err.message, "Rank 0 timed out in monitoredBarrier after 0 ms.");
    pg_close(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructors_fill_every_field),
        cmocka_unit_test(calls_are_numbered_and_have_a_deadline),
        cmocka_unit_test(a_single_rank_does_not_reach_the_backend),
        cmocka_unit_test(calls_that_reach_the_backend),
        cmocka_unit_test(shared_memory_is_counted_and_reached),
        cmocka_unit_test(the_first_failure_is_every_later_calls),
        cmocka_unit_test(the_observer_is_told_the_phase),
        cmocka_unit_test(faults_in_the_arguments_break_the_group),
        cmocka_unit_test(a_monitored_barrier_has_its_own_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
