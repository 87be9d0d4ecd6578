/* test_grading.c: what the graders' ranks and recorded calls detect, and the output of an exercise.
 * Each case is a check whose ranks behave as a student's function might, and the sentence that is
 * expected ("": passed).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/group/collective.h"
#include "tutorials/grading/grader.h"

enum { BIG = 500 }; // elements of a buffer

typedef struct Shared {
    int plays[3]; // [rank]
    int64_t sum;
    float data[3][BIG]; // [rank]
} Shared;

static int64_t wide;
static int world = 2;
static size_t most_calls; // limit passed to run_calls

// ---- behaviours of a rank -----------------------------------------------------------------------

static int all_reduce(GradeRank *me, int64_t *value) {
    return watched_pg_run(me->group, pg_all_reduce(value, 1, PG_I64, PG_SUM), &me->err);
}

// Correct behaviour: calls that run and a started one. Queries everything that a grader may query
// of its log.
static void do_all(GradeRank *me) {
    Shared *shared = me->context;
    int64_t mine = me->rank + 1;
    float *data = shared->data[me->rank];
    shared->plays[me->rank]++;
    me->status = -1;
    if (all_reduce(me, &mine) != 0) return;
    PgWork *work = watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), &me->err);
    if (!work) return;
    if (watched_pg_work_wait(work, NULL, NULL, &me->err) != 0) return;
    if (watched_pg_run(me->group, pg_broadcast(data, 7, PG_F32, 0), &me->err) != 0) return;
    me->status = 0;
    if (me->rank == 0) shared->sum = mine;
    const WatchLog *log = me->log;
    GRADE_EXPECT(me->grade, watch_calls(log) == 3 && watch_events(log, WATCH_RUN) == 2, "calls");
    GRADE_EXPECT(me->grade, watch_events(log, WATCH_START) == 1, "starts");
    GRADE_EXPECT(me->grade, watch_events(log, WATCH_WAIT) == 1, "waits");
    GRADE_EXPECT(me->grade, watch_events(log, WATCH_COPY) == 0, "copies");
    GRADE_EXPECT(me->grade, watch_count(log, PG_ALL_REDUCE) == 2, "all-reduces");
    GRADE_EXPECT(me->grade, watch_bytes(log, PG_ALL_REDUCE) == 8 + 4 * BIG, "bytes");
    GRADE_EXPECT(me->grade, watch_count(log, PG_BROADCAST) == 1, "broadcasts");
    GRADE_EXPECT(me->grade, watch_bytes(log, PG_BROADCAST) == 28, "broadcast bytes");
    GRADE_EXPECT(me->grade, watch_count(log, PG_BARRIER) == 0, "barriers");
}

static void run_calls(GradeRank *me) {
    Shared *shared = me->context;
    shared->plays[me->rank]++;
    for (size_t i = 0; i < most_calls; i++)
        if (watched_pg_run(me->group, pg_barrier(), &me->err) != 0) me->status = -1;
}

static void misalign(GradeRank *me) {
    char *at = (char *)&wide + 1;
    (void)watched_pg_run(me->group, pg_all_reduce(at, 1, PG_F32, PG_SUM), &me->err);
    me->err = (Error){0};
}

static void misalign_what_is_sent(GradeRank *me) {
    float all[4];
    (void)watched_pg_run(me->group, pg_all_gather((char *)&wide + 1, all, 1, PG_F32), &me->err);
    me->err = (Error){0};
}

static void misalign_what_is_received(GradeRank *me) {
    const float all[4] = {0};
    const Collective sum = pg_reduce_scatter(all, (char *)&wide + 1, 1, PG_F32, PG_SUM);
    (void)watched_pg_run(me->group, sum, &me->err);
    me->err = (Error){0};
}

static void ask_for_no_rank(GradeRank *me) {
    int64_t value = 0;
    (void)watched_pg_run(me->group, pg_broadcast(&value, 1, PG_I64, me->world), &me->err);
}

// The first refusal is reported.
static void ask_twice(GradeRank *me) {
    ask_for_no_rank(me);
    (void)watched_pg_run(me->group, pg_recv(NULL, 1, PG_I64, -1), &me->err);
}

// Only rank 0 is blocked in a receive; or both ranks have failed, and only rank 0 in a receive.
static void receive_alone(GradeRank *me) {
    int64_t value = 0;
    if (me->rank == 0) (void)watched_pg_run(me->group, pg_recv(&value, 1, PG_I64, 1), &me->err);
}

static void receive_while_another_fails(GradeRank *me) {
    receive_alone(me);
    if (me->rank == 1) error_set(&me->err, STATUS_FAILED, "nothing came");
}

// Both ranks fail, neither of them in a receive.
static void disagree(GradeRank *me) {
    int64_t value = 0;
    (void)watched_pg_run(
        me->group, me->rank == 0 ? pg_barrier() : pg_broadcast(&value, 1, PG_I64, 0), &me->err);
    if (me->err.status == STATUS_OK) error_set(&me->err, STATUS_FAILED, "nothing came");
}

static void receive_first(GradeRank *me) {
    int64_t value = 0;
    const int other = 1 - me->rank;
    if (watched_pg_run(me->group, pg_recv(&value, 1, PG_I64, other), &me->err) != 0) return;
    (void)watched_pg_run(me->group, pg_send(&value, 1, PG_I64, other), &me->err);
}

static void stay_away(GradeRank *me) {
    int64_t value = 0;
    if (me->rank != 1) (void)all_reduce(me, &value);
}

static void return_more(GradeRank *me) {
    if (me->rank == 1) me->status = 3;
}

static void not_wait(GradeRank *me) {
    float *data = ((Shared *)me->context)->data[me->rank];
    (void)watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), &me->err);
    (void)pg_run(me->group, pg_barrier(), &me->err); // runs after the started call
}

static void exit_early(GradeRank *me) {
    if (me->rank == 1) _exit(9);
}

static void crash(GradeRank *me) {
    signal(SIGSEGV, SIG_DFL); // cmocka's handler would exit
    if (me->rank == 1) raise(SIGSEGV);
}

static void miss_one_after_another(GradeRank *me) {
    usleep((useconds_t)(me->rank == 1 ? 0 : 100000));
    grade_miss(me->grade, "rank %d misses", me->rank);
}

static void write_behind(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    memory[10] = 1;
}

static void write_before(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    memory[-64] = 1;
}

static void write_inside(GradeRank *me) {
    char *memory = grade_fenced(me->grade, 10);
    for (int i = 0; i < 10; i++) GRADE_EXPECT(me->grade, memory[i] == 0, "not zeroed");
    memset(memory, 1, 10);
}

// Ignores a lost connection.
static void say_nothing_failed(GradeRank *me) {
    int64_t value = 0;
    (void)all_reduce(me, &value);
}

static void give_no_reason(GradeRank *me) {
    int64_t value = 0;
    me->status = watched_pg_run(me->group, pg_all_reduce(&value, 1, PG_I64, PG_SUM), NULL);
}

static void wait_for_null(GradeRank *me) {
    float *data = ((Shared *)me->context)->data[me->rank];
    PgWork *work = watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), &me->err);
    me->status = watched_pg_work_wait(work, NULL, NULL, &me->err);
}

static void ignore_the_wait(GradeRank *me) {
    float *data = ((Shared *)me->context)->data[me->rank];
    PgWork *work = watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), &me->err);
    me->status = work ? 0 : -1;
    if (work) (void)watched_pg_work_wait(work, NULL, NULL, &me->err);
}

// Ranks 0 and 1 continue after a failure, so that rank 2, whose first collective is the sum, is not
// alone in it.
static void go_on(GradeRank *me) {
    float *data = ((Shared *)me->context)->data[me->rank];
    int64_t value = 0;
    const Collective exchange =
        me->rank == 0 ? pg_send(&value, 1, PG_I64, 1) : pg_recv(&value, 1, PG_I64, 0);
    if (me->rank < 2) me->status = watched_pg_run(me->group, exchange, &me->err);
    Error err = {0};
    PgWork *work = watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), &err);
    if (!work || watched_pg_work_wait(work, NULL, NULL, &err) != 0) {
        GRADE_EXPECT(me->grade, strstr(err.message, "connection"), "rank %d: %s", me->rank,
                     err.message);
        me->err = err;
        me->status = -1;
    }
}

// ---- checks -------------------------------------------------------------------------------------

static Shared shared;
static void (*what)(GradeRank *me);
static int plays; // expected runs by each rank, in `shared`; -1: any number

static void expect_plays(Grade *grade) {
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, plays < 0 || shared.plays[r] == plays, "rank %d plays %d times", r,
                     shared.plays[r]);
}

static void check(Grade *grade) {
    for (int r = 0; r < world; r++)
        for (int i = 0; i < BIG; i++) shared.data[r][i] = (float)i;
    grade_ranks(grade, world, what, &shared);
    expect_plays(grade);
    if (what != do_all) return;
    GRADE_EXPECT(grade, shared.sum == world * (world + 1) / 2, "sum %d", (int)shared.sum);
    for (int r = 0; r < world; r++)
        for (int i = 0; i < BIG; i++)
            GRADE_EXPECT(grade, shared.data[r][i] == (float)(world * i), "not copied back");
}

static void check_broken(Grade *grade) {
    grade_broken_ranks(grade, world, what, &shared);
    expect_plays(grade);
}

// Runs a single check; returns its sentence.
static Outcome outcome_of(void (*run)(Grade *grade), void (*of_rank)(GradeRank *me), int count) {
    const GradeCheck one = {"a check", 1, NULL, run};
    memset(&shared, 0, sizeof shared);
    what = of_rank;
    plays = count;
    return supervise_check(&one, "no file", "/tmp", true);
}

static void expect(Outcome outcome, const char *wanted) {
    if (*wanted ? !strstr(outcome.sentence, wanted) : *outcome.sentence)
        fail_msg("\"%s\", not \"%s\"", outcome.sentence, wanted);
    assert_int_equal(outcome.result, *wanted ? RESULT_MISS : RESULT_PASS);
}

static void ranks_are_judged_by_what_they_did(void **state) {
    (void)state;
    static const struct {
        void (*of_rank)(GradeRank *me);
        const char *sentence;
    } cases[] = {
        {misalign,
         "its type has: it moves several bytes for each, and a bool is one. (rank 0 of 2)"},
        {misalign_what_is_sent, "its type has"},
        {misalign_what_is_received, "its type has"},
        {ask_for_no_rank, "No group runs this call: rank 0 of 2: broadcast("},
        {ask_twice, "No group runs this call: rank 0 of 2: broadcast("},
        {disagree, "Not all ranks took part in the same collectives"},
        {receive_alone, "Not all ranks took part in the same collectives"},
        {receive_while_another_fails, "Not all ranks took part in the same collectives"},
        {receive_first, "2 ranks wait in a receive, and none of them sends"},
        {stay_away, "Not all ranks took part in the same collectives"},
        {return_more, "it returned 3: the caller takes that for a failure. (2 ranks, rank 1)"},
        {not_wait, "wait for what was started. (1 starts, 0 waits)"},
        {exit_early, "It ended the whole program with status 9; a function returns to its caller. "
                     "(rank 1 of 2)"},
        {crash, "It crashed (SIGSEGV)"},
        {miss_one_after_another, "rank 1 misses"},
        {write_behind, "Something was written behind a buffer."},
        {write_before, "Something was written in front of a buffer"},
        {write_inside, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(outcome_of(check, cases[i].of_rank, -1), cases[i].sentence);
}

static void right_ranks_pass(void **state) {
    (void)state;
    for (world = 1; world <= 3; world++) expect(outcome_of(check, do_all, 1), "");
    world = 2;
}

// A running collective fails once, a started one twice; after the last collective nothing fails.
static void every_collective_fails_once(void **state) {
    (void)state;
    expect(outcome_of(check_broken, do_all, 3 * 2 + 1), "");
    static const size_t calls[] = {0, 1, 7, 8, 9};
    for (int i = 0; i < 5; i++) {
        const int broken = calls[i] < 8 ? (int)calls[i] : 8;
        most_calls = calls[i];
        expect(outcome_of(check_broken, run_calls, 2 * broken + (calls[i] < 8)), "");
    }
    expect(outcome_of(check_broken, say_nothing_failed, -1),
           "and it returned 0, not -1: the caller continues with numbers that never arrived. "
           "(rank 0, its collective number 1)");
    expect(outcome_of(check_broken, give_no_reason, -1), "It returned -1 with an empty err");
    expect(outcome_of(check_broken, wait_for_null, -1), "NULL was waited for");
    expect(outcome_of(check_broken, ignore_the_wait, -1), "and it returned 0, not -1");
    world = 3;
    expect(outcome_of(check_broken, go_on, -1), "");
    world = 2;
}

static void a_full_log_takes_no_more(void **state) {
    (void)state;
    static WatchLog log = {.refused = "as before"};
    watch_begin(&log);
    for (size_t i = 0; i < WATCH_MOST + 2; i++) watched_device_copy(NULL, &wide, NULL, &world, 4);
    watch_begin(NULL);
    assert_int_equal(log.count, WATCH_MOST);
    assert_int_equal(watch_events(&log, WATCH_COPY), WATCH_MOST);
    assert_int_equal(log.events[WATCH_MOST - 1].bytes, 4);
    assert_string_equal(log.refused, "as before");
    assert_false(log.waited_for_null || log.misaligned);
}

static void ends_are_said(void **state) {
    (void)state;
    static const struct {
        int status; // as from waitpid
        const char *sentence;
    } cases[] = {
        {SIGALRM, "It did not end within 10 seconds"},
        {SIGXCPU, "It did not end within 10 seconds"},
        {SIGSEGV, "It crashed (SIGSEGV)"},
        {SIGFPE, "A whole number was divided by 0 (SIGFPE)."},
        {SIGKILL, "It was ended by signal 9 ("},
        {86 << 8, "A sanitizer ended it"}, // which tutorials/grade --asan sets
        {3 << 8, "It ended the whole program with status 3; a function returns to its caller."},
        {0, "It ended the whole program with status 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[SENTENCE_MAX];
        say_how_it_ended(sentence, cases[i].status);
        assert_ptr_equal(strstr(sentence, cases[i].sentence), sentence);
    }
}

// ---- a complete exercise ------------------------------------------------------------------------

static void pass(Grade *grade) {
    (void)grade;
    printf("said by a check\n");
}

static void miss_at_length(Grade *grade) {
    char text[2 * SENTENCE_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    grade_miss(grade, "%s", text);
}

static void play_and_miss_at_length(Grade *grade) {
    if (grade_plays(grade)) miss_at_length(grade);
}

static void end_the_judge(Grade *grade) {
    (void)grade;
    _exit(5);
}

// Returns the output of grader_run, owned by the caller. *all: whether all points were given.
static char *printed(const Grader *grader, bool as_json, bool *all) {
    FILE *file = tmpfile();
    int status = 0;
    assert_non_null(file);
    fflush(NULL);
    const pid_t child = fork(); // grader_run changes its process's state
    if (child == 0) {
        dup2(fileno(file), STDOUT_FILENO);
        close(STDERR_FILENO);
        const bool given = grader_run(grader, "no file", as_json);
        fflush(NULL);
        _exit(given);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    *all = WEXITSTATUS(status) == 1;
    char *text = calloc(1, 8192);
    assert_true(pread(fileno(file), text, 8191, 0) > 0);
    fclose(file);
    return text;
}

static void an_exercise_is_printed(void **state) {
    (void)state;
    const Grader grader = {"00-none/01-some",
                           {{"one", 2, NULL, pass},
                            {"two", 3, "one", miss_at_length},
                            {"three", 4, "two", pass},
                            {"four", 5, "one", pass},
                            {"five", 6, NULL, end_the_judge},
                            {"six", 7, NULL, play_and_miss_at_length}}};
    const Grader right = {"right", {{"one", 1, NULL, pass}, {"two", 2, "one", pass}}};
    char wanted[2048], xs[SENTENCE_MAX];
    bool all = true;
    memset(xs, 'x', sizeof xs - 1);
    xs[sizeof xs - 1] = '\0';
    assert_int_equal(grader_points(&grader), 27);
    snprintf(wanted, sizeof wanted,
             "00-none/01-some\n"
             "  PASS 2/2  one\n"
             "  MISS 0/3  two\n"
             "           %s\n"
             "  SKIP 0/4  three\n"
             "           Not tried, because \"two\" was missed.\n"
             "  PASS 5/5  four\n"
             "  MISS 0/6  five\n"
             "           It ended the whole program with status 5; a function returns to its "
             "caller.\n"
             "  MISS 0/7  six\n"
             "           %s\n"
             "Score 7/27\n",
             xs, xs);
    char *text = printed(&grader, false, &all);
    assert_string_equal(text, wanted);
    assert_false(all);
    free(text);
    text = printed(&right, false, &all);
    assert_string_equal(text, "right\n  PASS 1/1  one\n  PASS 2/2  two\nScore 3/3\n");
    assert_true(all);
    free(text);
    text = printed(&right, true, &all);
    assert_string_equal(
        text, "{\n  \"exercise\": \"right\",\n  \"score\": 3,\n  \"points\": 3,\n  \"checks\": [\n"
              "    {\"name\": \"one\", \"points\": 1, \"result\": \"PASS\", \"sentence\": \"\"},\n"
              "    {\"name\": \"two\", \"points\": 2, \"result\": \"PASS\", \"sentence\": \"\"}\n  "
              "]\n}\n\n");
    assert_true(all);
    free(text);
}

static void as_many_checks_as_fit_are_read(void **state) {
    (void)state;
    Grader graders[2] = {{"full", {{0}}}, {"behind it", {{"one", 1, NULL, pass}}}};
    for (int i = 0; i < GRADE_MOST_CHECKS; i++)
        graders[0].checks[i] = (GradeCheck){"a check", 1, NULL, pass};
    assert_int_equal(grader_points(graders), GRADE_MOST_CHECKS);
}

static char *room; // the exercise's shared folder

static void note_room(Grade *grade) {
    strcpy(room, grade_room(grade));
}

// A check may only need checks before it.
static void a_needed_check_stands_before(void **state) {
    (void)state;
    const Grader wrong[] = {
        {"later", {{"0", 1, NULL, note_room}, {"1", 1, "2", pass}, {"2", 2, NULL, pass}}},
        {"itself", {{"0", 1, NULL, note_room}, {"1", 1, "1", pass}}}};
    room = grade_shared(100);
    for (int i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            close(STDOUT_FILENO);
            close(STDERR_FILENO);
            signal(SIGABRT, SIG_DFL);
            _exit(grader_run(&wrong[i], "no file", false));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        assert_int_equal(rmdir(room), 0);
    }
}

static void blocks_are_counted(void **state) {
    (void)state;
    const long before = watch_blocks();
    void *blocks[] = {watched_malloc(8), watched_calloc(1, 8), watched_realloc(NULL, 8),
                      watched_memory_zalloc(8)};
    assert_int_equal(watch_blocks(), before + 4);
    for (int i = 0; i < 4; i++) blocks[i] = watched_realloc(blocks[i], 4096);
    assert_int_equal(watch_blocks(), before + 4);
    watched_free(NULL);
    for (int i = 0; i < 4; i++) watched_free(blocks[i]);
    assert_int_equal(watch_blocks(), before);
}

static void ulps_are_counted_across_zero(void **state) {
    (void)state;
    assert_int_equal(grade_ulps(1, 1), 0);
    assert_int_equal(grade_ulps(0.0f, -0.0f), 0);
    assert_int_equal(grade_ulps(1, 1.0f + 0x1p-22f), 2);
    assert_int_equal(grade_ulps(1.0f + 0x1p-22f, 1), 2);
    assert_int_equal(grade_ulps(0x1p-149f, -0x1p-148f), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ranks_pass),
        cmocka_unit_test(ranks_are_judged_by_what_they_did),
        cmocka_unit_test(every_collective_fails_once),
        cmocka_unit_test(a_full_log_takes_no_more),
        cmocka_unit_test(ends_are_said),
        cmocka_unit_test(an_exercise_is_printed),
        cmocka_unit_test(as_many_checks_as_fit_are_read),
        cmocka_unit_test(a_needed_check_stands_before),
        cmocka_unit_test(blocks_are_counted),
        cmocka_unit_test(ulps_are_counted_across_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
