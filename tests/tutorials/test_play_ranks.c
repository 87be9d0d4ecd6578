/* test_play_ranks.c: what is detected of ranks and by the watched calls. Each case is a check whose
 * ranks behave as a student's function might, and the whole sentence that is expected ("": passed).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>

#include "tests/rigs/grading_rig.h"

static const char *refused; // preset of the log's field
static int different;       // run of a process in which count_runs gives another result
static int64_t wide;

// ---- right behaviour ----------------------------------------------------------------------------

static void wait_twice(GradeRank *me) {
    PgWork *work = start(me, &me->err);
    for (int i = 0; i < 2; i++) me->status = watched_pg_work_wait(work, NULL, NULL, &me->err);
    GRADE_EXPECT(me->grade, watch_events(me->log, WATCH_WAIT) == 2, "waits");
}

// All ranks but the first to lock the mutex must wait for another process.
static void lock_in_turn(GradeRank *me) {
    Shared *shared = me->context;
    pthread_mutex_lock(&shared->mutex);
    const int64_t before = shared->sum;
    usleep(20000);
    shared->sum = before + 1;
    pthread_mutex_unlock(&shared->mutex);
}

static void write_inside(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    for (int i = 0; i < 10; i++) GRADE_EXPECT(me->grade, memory[i] == 0, "not zeroed");
    memset(memory, 1, 10);
}

static int runs; // of this process

// In each of the last check's four runs the same, but in run `different`.
static void count_runs(GradeRank *me) {
    Shared *shared = me->context;
    if (me->rank == 0) shared->sum = ++runs == different;
    GRADE_EXPECT(me->grade, me->log->count == 0, "the log of another run");
    (void)watched_pg_run(me->group, pg_barrier(), &me->err);
}

// ---- one culprit --------------------------------------------------------------------------------

static void misalign(GradeRank *me) {
    char *at = me->rank == rig.culprit ? (char *)&wide + 1 : (char *)&wide;
    (void)watched_pg_run(me->group, pg_all_reduce(at, 1, PG_F32, PG_SUM), &me->err);
    me->err = (Error){0};
}

static void misalign_what_is_sent(GradeRank *me) {
    float all[4];
    const char *from = me->rank == rig.culprit ? (char *)&wide + 1 : (char *)&wide;
    (void)watched_pg_run(me->group, pg_all_gather(from, all, 1, PG_F32), &me->err);
    me->err = (Error){0};
}

static void misalign_what_is_received(GradeRank *me) {
    const float all[4] = {0};
    char *to = me->rank == rig.culprit ? (char *)&wide + 1 : (char *)&wide;
    (void)watched_pg_run(me->group, pg_reduce_scatter(all, to, 1, PG_F32, PG_SUM), &me->err);
    me->err = (Error){0};
}

// A broadcast whose root does not exist, then a receive from no rank: the first is reported.
static void ask_for_no_rank(GradeRank *me) {
    int64_t value = 0;
    if (me->rank != rig.culprit) return;
    if (refused) strcpy(me->log->refused, refused);
    (void)watched_pg_run(me->group, pg_broadcast(&value, 1, PG_I64, me->world), &me->err);
    (void)watched_pg_run(me->group, pg_recv(&value, 1, PG_I64, -1), NULL);
}

static void start_for_no_rank(GradeRank *me) {
    int64_t value = 0;
    if (me->rank == rig.culprit)
        (void)watched_pg_start(me->group, pg_broadcast(&value, 1, PG_I64, me->world), &me->err);
}

// Calls, two of them wrong, of a thread without a log.
static void ask_without_log(GradeRank *me) {
    if (me->rank != rig.culprit) return;
    watch_begin(NULL);
    (void)watched_pg_work_wait(NULL, NULL, NULL, NULL);
    ask_for_no_rank(me);
    me->err = (Error){.status = STATUS_FAILED, .message = "no log"};
}

static void return_more(GradeRank *me) {
    if (me->rank == rig.culprit) me->status = 3;
}

static void not_wait(GradeRank *me) {
    PgWork *work = start(me, &me->err);
    if (me->rank != rig.culprit) (void)watched_pg_work_wait(work, NULL, NULL, &me->err);
    (void)pg_run(me->group, pg_barrier(), &me->err); // runs after the started call
}

static void fail_alone(GradeRank *me) {
    if (me->rank == rig.culprit) error_set(&me->err, STATUS_FAILED, "nothing came");
}

static void crash(GradeRank *me) {
    signal(SIGSEGV, SIG_DFL); // cmocka's handler would exit
    if (me->rank == rig.culprit) raise(SIGSEGV);
}

static ssize_t die(void *cookie, const char *text, size_t bytes) {
    (void)cookie, (void)text;
    raise(SIGKILL);
    return (ssize_t)bytes;
}

// Dies after the return, when the rank's output is flushed.
static void crash_later(GradeRank *me) {
    if (me->rank != rig.culprit) return;
    FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = die});
    fputs("x", file);
}

static void miss_briefly(GradeRank *me) {
    if (me->rank == rig.culprit) grade_miss(me->grade, "x");
}

static void write_behind(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    if (me->rank == rig.culprit) memory[10] = 1;
}

static void write_before(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    if (me->rank == rig.culprit) memory[-64] = 1;
}

// ---- several culprits ---------------------------------------------------------------------------

static void receive_first(GradeRank *me) {
    int64_t value = 0;
    const int other = 1 - me->rank;
    me->group->timeout_s = 0.1;
    if (watched_pg_run(me->group, pg_recv(&value, 1, PG_I64, other), &me->err) != 0) return;
    (void)watched_pg_run(me->group, pg_send(&value, 1, PG_I64, other), &me->err);
}

static void stay_away(GradeRank *me) {
    int64_t value = 0;
    if (me->rank != 1) (void)all_reduce(me, &value);
}

static void disagree(GradeRank *me) {
    int64_t value = 0;
    (void)watched_pg_run(
        me->group, me->rank == 0 ? pg_barrier() : pg_broadcast(&value, 1, PG_I64, 0), &me->err);
    if (me->err.status == STATUS_OK) error_set(&me->err, STATUS_FAILED, "nothing came");
}

static void miss_one_after_another(GradeRank *me) {
    usleep((useconds_t)(me->rank == 1 ? 0 : 100000));
    grade_miss(me->grade, "rank %d misses", me->rank);
}

static void miss_at_length(GradeRank *me) {
    char text[2 * SENTENCE_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    grade_miss(me->grade, "%s", text);
}

// ---- ranks in a given state ---------------------------------------------------------------------

// What each rank has done and failed in, without doing it.
static const struct Seeming {
    const char *errors[3]; // [rank]; NULL: none
    const char
        *calls[3]; // [rank], a letter for each: r receive, b barrier, s started receive, w wait
} * seeming;

static void seem(GradeRank *me) {
    for (const char *call = seeming->calls[me->rank]; *call; call++)
        me->log->events[me->log->count++] =
            (WatchEvent){.kind = *call == 'w'   ? WATCH_WAIT
                                 : *call == 's' ? WATCH_START
                                                : WATCH_RUN,
                         .collective.kind = *call == 'b' ? PG_BARRIER : PG_RECV};
    if (seeming->errors[me->rank])
        error_set(&me->err, STATUS_FAILED, "%s", seeming->errors[me->rank]);
}

// ---- checks -------------------------------------------------------------------------------------

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void check(Grade *grade) {
    const int files = open_files();
    context.given = 7;
    context.mutex = grade_mutex();
    for (int r = 0; r < rig.world && r < MOST; r++)
        for (int i = 0; i < BIG; i++) context.data[r][i] = (float)i;
    grade_ranks(grade, rig.world, rig.of_rank, &context);
    expect_plays(grade);
    GRADE_EXPECT(grade, open_files() == files, "files stay open");
    GRADE_EXPECT(grade, waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a process is left");
    if (rig.of_rank == lock_in_turn)
        GRADE_EXPECT(grade, context.sum == rig.world, "%d", (int)context.sum);
    if (rig.of_rank != do_all) return;
    GRADE_EXPECT(grade, context.sum == rig.world * (rig.world + 1) / 2, "sum %d", (int)context.sum);
    for (int r = 0; r < rig.world; r++)
        for (int i = 0; i < BIG; i++)
            GRADE_EXPECT(grade, context.data[r][i] == (float)(rig.world * i), "not copied back");
}

#define MISALIGNED                                                                              \
    "A collective was given an address that no number of its type has: it moves several bytes " \
    "for "                                                                                      \
    "each, and a bool is one. (rank # of 2)"
#define NO_SUCH_RANK \
    "No group runs this call: rank # of 2: broadcast(I64, 1, root 2): there is no such rank."
#define NOT_ALL \
    "Not all ranks took part in the same collectives, so the other ranks' collectives failed. "

static void a_culprit_is_named(void **state) {
    (void)state;
    static const struct {
        void (*of_rank)(GradeRank *me);
        const char *sentence;
    } cases[] = {
        {misalign, MISALIGNED},
        {misalign_what_is_sent, MISALIGNED},
        {misalign_what_is_received, MISALIGNED},
        {ask_for_no_rank, NO_SUCH_RANK},
        {start_for_no_rank, NO_SUCH_RANK},
        {ask_without_log, NOT_ALL "(2 ranks; rank #'s error: no log)"},
        {fail_alone, NOT_ALL "(2 ranks; rank #'s error: nothing came)"},
        {return_more, "Nothing had failed, and it returned 3: the caller takes that for a failure. "
                      "(2 ranks, rank #)"},
        {not_wait, "It returned while its own collectives were still running: wait for what was "
                   "started. (1 starts, 0 waits)"},
        {exit_early, "It ended the whole program with status 9; a function returns to its caller. "
                     "(rank # of 2)"},
        {crash, "It crashed (SIGSEGV): it read or wrote memory that is not its own. (rank # of 2)"},
        {crash_later, "It was ended by signal 9 (Killed). (rank # of 2)"},
        {miss_briefly, "x"},
        {write_behind, "Something was written behind a buffer."},
        {write_before, "Something was written in front of a buffer: an index was negative."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (rig.culprit = 0; rig.culprit < 2; rig.culprit++)
            expect(outcome_of(check, cases[i].of_rank, -1), cases[i].sentence);
    refused = "y";
    rig.culprit = 1;
    expect(outcome_of(check, ask_for_no_rank, -1), "No group runs this call: y.");
    refused = NULL;
}

static void the_first_cause_is_named(void **state) {
    (void)state;
    char xs[SENTENCE_MAX];
    memset(xs, 'x', sizeof xs - 1);
    xs[sizeof xs - 1] = '\0';
    expect(outcome_of(check, miss_one_after_another, -1), "rank 1 misses");
    expect(outcome_of(check, miss_at_length, -1), xs);
    expect(outcome_of(check, stay_away, -1),
           NOT_ALL "(2 ranks; rank 0's error: collective 1 all_reduce(I64, 1, sum): rank 1 has "
                   "closed its group; has finished no collective)");
    expect(outcome_of(check, disagree, -1),
           NOT_ALL "(2 ranks; rank 0's error: collective 1: ranks disagree: rank 0 runs barrier, "
                   "rank 1 runs broadcast(I64, 1, root 0); they differ in operation, size, type)");
    rig.world = 3;
    rig.culprit = 0;
    expect(outcome_of(check, miss_briefly, -1), "x");
    rig.world = 2;
}

#define DEADLOCK                                                                                  \
    " ranks wait in a receive, and none of them sends: if all receive first, no rank is left to " \
    "send. (rank "

// Two ranks or more have failed, all of them in a receive.
static void a_deadlock_is_recognised(void **state) {
    (void)state;
    static const struct {
        struct Seeming seeming;
        const char *sentence;
    } cases[] = {
        {{{"a", "b", "c"}, {"r", "br", "rw"}}, "3" DEADLOCK "2's error: c)"},
        {{{"a", "b", NULL}, {"r", "rs", ""}}, "2" DEADLOCK "1's error: b)"},
        {{{NULL, "b", "c"}, {"", "r", "r"}}, "2" DEADLOCK "2's error: c)"},
        {{{"a", "b", NULL}, {"r", "rb", ""}}, NOT_ALL "(3 ranks; rank 0's error: a)"},
        {{{"a", "b", NULL}, {"r", "", "r"}}, NOT_ALL "(3 ranks; rank 0's error: a)"},
        {{{"a", "b", NULL}, {"s", "s", ""}}, NOT_ALL "(3 ranks; rank 0's error: a)"},
        {{{NULL, NULL, "c"}, {"", "", "r"}}, NOT_ALL "(3 ranks; rank 2's error: c)"},
        {{{NULL, "b", "c"}, {"", "b", "r"}}, NOT_ALL "(3 ranks; rank 1's error: b)"},
        {{{NULL, NULL, NULL}, {"r", "r", "r"}}, ""},
    };
    rig.world = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        seeming = &cases[i].seeming;
        expect(outcome_of(check, seem, -1), cases[i].sentence);
    }
    rig.world = 2;
    expect(outcome_of(check, receive_first, -1), "2" DEADLOCK "1's error: *");
}

static void right_ranks_pass(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, MOST, MOST + 1};
    for (int i = 0; i < 5; i++) {
        rig.world = worlds[i];
        expect(outcome_of(check, do_all, 1),
               rig.world > MOST ? "It was ended by signal 6 (Aborted)." : "");
    }
    rig.world = 3;
    expect(outcome_of(check, lock_in_turn, -1), "");
    rig.world = 2;
    expect(outcome_of(check, wait_twice, -1), "");
    expect(outcome_of(check, write_inside, -1), "");
    for (int i = 0; i < 4; i++) assert_int_equal(GRADE_WORLDS[i], i < 3 ? i + 1 : 5);
}

// Only in an exercise's last check, and by the context after each run.
static void ranks_are_run_again(void **state) {
    (void)state;
    static const char kept[] =
        "Called again with the same numbers, it gave another result: "
        "something was kept from one call to the next, in a static or global "
        "variable.";
    for (rig.world = 1; rig.world <= 2; rig.world++) {
        rig.is_last = false;
        different = 2;
        expect(outcome_of(check, count_runs, -1), "");
        rig.is_last = true;
        for (different = 1; different <= 5; different++)
            expect(outcome_of(check, count_runs, -1), different <= 4 ? kept : "");
    }
    rig.world = 2;
    expect(outcome_of(check, do_all, 1), "");
    for (rig.culprit = 0; rig.culprit < 2; rig.culprit++) {
        expect(outcome_of(check, return_more, -1),
               "Nothing had failed, and it returned 3: the caller takes that for a failure. "
               "(2 ranks, rank #)");
        expect(outcome_of(check, fail_alone, -1),
               NOT_ALL "(2 ranks; rank #'s error: nothing came)");
    }
    rig.is_last = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ranks_pass),         cmocka_unit_test(a_culprit_is_named),
        cmocka_unit_test(the_first_cause_is_named), cmocka_unit_test(a_deadlock_is_recognised),
        cmocka_unit_test(ranks_are_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
