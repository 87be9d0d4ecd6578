/* test_watched_calls.c: the watched calls: their log, the failures that they make, and the verdicts
 * on these; the blocks of memory that they count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/rigs/grading_rig.h"

static int64_t wide;
static size_t most_calls; // limit passed to run_calls

static void run_calls(GradeRank *me) {
    Shared *shared = me->context;
    shared->plays[me->rank]++;
    for (size_t i = 0; i < most_calls; i++)
        if (watched_pg_run(me->group, pg_barrier(), &me->err) != 0) me->status = -1;
}

// ---- after a lost connection --------------------------------------------------------------------

static void say_nothing_failed(GradeRank *me) {
    int64_t value = 0;
    const int status = all_reduce(me, &value);
    if (me->rank != rig.culprit) me->status = status;
}

static void return_minus_2(GradeRank *me) {
    int64_t value = 0;
    const int status = all_reduce(me, &value);
    me->status = me->rank == rig.culprit ? 2 * status : status;
}

static void give_no_reason(GradeRank *me) {
    int64_t value = 0;
    me->status = watched_pg_run(me->group, pg_all_reduce(&value, 1, PG_I64, PG_SUM),
                                me->rank == rig.culprit ? NULL : &me->err);
}

static void wait_for_null(GradeRank *me) {
    PgWork *work = start(me, &me->err);
    me->status = work || me->rank == rig.culprit
                     ? watched_pg_work_wait(work, NULL, NULL, work ? &me->err : NULL)
                     : -1;
}

static void ignore_the_wait(GradeRank *me) {
    PgWork *work = start(me, &me->err);
    me->status = work ? 0 : -1;
    const int status = work ? watched_pg_work_wait(work, NULL, NULL, &me->err) : -1;
    if (me->rank != rig.culprit) me->status = status;
}

// Ranks 0 and 1 continue after a failure, so that rank 2, whose first collective is the sum, is not
// alone in it.
static void go_on(GradeRank *me) {
    int64_t value = 0;
    const Collective exchange =
        me->rank == 0 ? pg_send(&value, 1, PG_I64, 1) : pg_recv(&value, 1, PG_I64, 0);
    if (me->rank < 2) me->status = watched_pg_run(me->group, exchange, &me->err);
    Error err = {0};
    PgWork *work = start(me, &err);
    if (!work || watched_pg_work_wait(work, NULL, NULL, &err) != 0) {
        GRADE_EXPECT(me->grade, strstr(err.message, "connection"), "rank %d: %s", me->rank,
                     err.message);
        me->err = err;
        me->status = -1;
    }
}

// Three started collectives, of which the later ones run also after a failure.
static void lose_and_go_on(GradeRank *me) {
    Shared *shared = me->context;
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        PgWork *work = start(me, &err);
        if (!work)
            shared->lost_starts[me->rank]++;
        else if (watched_pg_work_wait(work, NULL, NULL, &err) != 0)
            shared->lost_waits[me->rank]++;
        if (err.status == STATUS_OK) continue;
        if (me->rank == 0) shared->order = 10 * shared->order + (work ? 2 : 1);
        GRADE_EXPECT(me->grade,
                     strcmp(err.message, "the connection to the other ranks was lost") == 0,
                     "another error: %s", err.message);
        me->err = err;
        me->status = -1;
    }
}

static void check_broken(Grade *grade) {
    context.given = 7;
    rig.breaks = true;
    grade_broken_ranks(grade, rig.world, rig.of_rank, &context);
    expect_plays(grade);
    for (int r = 0; r < rig.world && rig.of_rank == do_all; r++)
        GRADE_EXPECT(grade, rig.begun[r] == rig.plays + (rig.is_last ? 4 : 1), "%d", rig.begun[r]);
    if (rig.of_rank == lose_and_go_on)
        GRADE_EXPECT(grade, context.order == 121212, "the order %d", context.order);
    for (int r = 0; r < rig.world && rig.of_rank == lose_and_go_on; r++)
        GRADE_EXPECT(grade, context.lost_starts[r] == 3 && context.lost_waits[r] == 3,
                     "rank %d: %d starts, %d waits", r, context.lost_starts[r],
                     context.lost_waits[r]);
}

// A running collective fails once, a started one twice; after the last collective nothing fails.
static void every_collective_fails_once(void **state) {
    (void)state;
    static const size_t calls[] = {0, 1, 7, 8, 9};
    for (int last = 0; last < 2; last++) {
        rig.is_last = last == 1;
        expect(outcome_of(check_broken, do_all, 3 * 2 + 1), "");
    }
    rig.is_last = false;
    for (int i = 0; i < 5; i++) {
        const int broken = calls[i] < 8 ? (int)calls[i] : 8;
        most_calls = calls[i];
        expect(outcome_of(check_broken, run_calls, 2 * broken + (calls[i] < 8)), "");
    }
    expect(outcome_of(check_broken, lose_and_go_on, -1), "");
    rig.world = 3;
    expect(outcome_of(check_broken, go_on, -1), "");
    rig.world = 2;
}

#define GOES_ON                                                                                \
    ", not -1: the caller continues with numbers that never arrived. (rank #, its collective " \
    "number 1)"

static void a_lost_connection_is_reported_on(void **state) {
    (void)state;
    static const struct {
        void (*of_rank)(GradeRank *me);
        const char *sentence;
    } cases[] = {
        {say_nothing_failed, "The connection was lost in a collective, and it returned 0" GOES_ON},
        {ignore_the_wait, "The connection was lost in a collective, and it returned 0" GOES_ON},
        {return_minus_2, "The connection was lost in a collective, and it returned -2" GOES_ON},
        {give_no_reason,
         "It returned -1 with an empty err: pass err to every call that may fail, so "
         "that the caller learns the reason. (rank #, its collective number 1)"},
        {wait_for_null, "The connection was lost, so pg_start returned NULL, and NULL was waited "
                        "for: pg_work_wait crashes there. Look at what pg_start returns. (rank #)"},
        {exit_early, "It ended the whole program with status 9; a function returns to its caller. "
                     "(rank # of 2)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (rig.culprit = 0; rig.culprit < 2; rig.culprit++)
            expect(outcome_of(check_broken, cases[i].of_rank, -1), cases[i].sentence);
}

// ---- the log and the memory, in one process -----------------------------------------------------

static void a_full_log_takes_no_more(void **state) {
    (void)state;
    static WatchLog log;
    int64_t from = 5;
    wide = 0;
    watch_begin(&log);
    for (size_t i = 0; i < WATCH_MOST + 2; i++) watched_device_copy(NULL, &wide, NULL, &from, 8);
    watch_begin(NULL);
    watched_device_copy(NULL, &wide, NULL, &from, 8);
    assert_int_equal(wide, 5);
    assert_int_equal(log.count, 4096);
    assert_int_equal(watch_events(&log, WATCH_COPY), 4096);
    assert_int_equal(log.events[4095].bytes, 8);
    assert_false(log.waited_for_null || log.misaligned || log.refused[0]);
}

static void *allocate_often(void *nothing) {
    for (int i = 0; i < 100000; i++) watched_free(watched_malloc(8));
    return nothing;
}

static void blocks_are_counted(void **state) {
    (void)state;
    pthread_t threads[4];
    const long before = watch_blocks();
    void *blocks[] = {watched_malloc(8), watched_calloc(1, 8), watched_realloc(NULL, 8),
                      watched_memory_zalloc(8)};
    assert_int_equal(watch_blocks(), before + 4);
    for (int i = 0; i < 4; i++) blocks[i] = watched_realloc(blocks[i], 4096);
    assert_int_equal(watch_blocks(), before + 4);
    watched_free(NULL);
    for (int i = 0; i < 4; i++) watched_free(blocks[i]);
    assert_int_equal(watch_blocks(), before);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_often, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(watch_blocks(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_fails_once),
        cmocka_unit_test(a_lost_connection_is_reported_on),
        cmocka_unit_test(a_full_log_takes_no_more),
        cmocka_unit_test(blocks_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
