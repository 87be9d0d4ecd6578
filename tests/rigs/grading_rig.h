/* grading_rig.h: a check of the graders (tutorials/grading) whose ranks behave as a student's
 * function might. Include it in one file of a test with `WRAP mmap` (functions.cmake).
 */
#ifndef TESTS_RIGS_GRADING_RIG_H
#define TESTS_RIGS_GRADING_RIG_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ddp/group/collective.h"
#include "ddp/group/group_internal.h"
#include "tutorials/grading/grader.h"

enum { BIG = 500, MOST = 8 }; // elements of a buffer; ranks

typedef struct Shared {
    int given;       // 7 before each run
    int plays[MOST]; // [rank]
    int64_t sum;
    int lost_starts[MOST], lost_waits[MOST]; // [rank], of lose_and_go_on, in all plays
    int order;                               // of rank 0's: 1 start, 2 wait, as digits
    float data[MOST][BIG];                   // [rank]
    pthread_mutex_t mutex;
} Shared;

static struct {
    void (*of_rank)(GradeRank *me); // behaviour of each rank
    int world;
    int culprit;  // the rank that behaves wrongly, where one does
    bool is_last; // check of its exercise
    bool breaks;  // the check calls grade_broken_ranks
    int plays;    // expected runs by each rank, in `context`; -1: any number
    int *begun;   // [rank], shared by the processes: runs of do_all in this check
} rig = {.world = 2};
static Shared context; // of the check

// ---- memory with nothing behind it --------------------------------------------------------------

void *__wrap_mmap(void *wish, size_t bytes, int protection, int flags, int file, off_t offset);
void *__real_mmap(void *wish, size_t bytes, int protection, int flags, int file, off_t offset);

// grade_shared's memory ends where nothing may be read: an access behind it crashes.
void *__wrap_mmap(void *wish, size_t bytes, int protection, int flags, int file, off_t offset) {
    enum { PAGE = 4096, BEHIND = 4 << 20 };
    if (file != -1 || !(flags & MAP_SHARED))
        return __real_mmap(wish, bytes, protection, flags, file, offset);
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE, used = (bytes + 63) / 64 * 64;
    char *memory = __real_mmap(wish, whole + BEHIND, protection, flags, file, offset);
    if (memory == MAP_FAILED || bytes == 0) return MAP_FAILED;
    mprotect(memory + whole, BEHIND, PROT_NONE);
    return memory + whole - used;
}

// ---- right behaviour ----------------------------------------------------------------------------

static int all_reduce(GradeRank *me, int64_t *value) {
    return watched_pg_run(me->group, pg_all_reduce(value, 1, PG_I64, PG_SUM), &me->err);
}

static PgWork *start(GradeRank *me, Error *err) {
    float *data = ((Shared *)me->context)->data[me->rank];
    return watched_pg_start(me->group, pg_all_reduce(data, BIG, PG_F32, PG_SUM), err);
}

static void inspect_log(const GradeRank *me) {
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

// Calls that run and a started one. Queries everything that a grader may query of its log.
static void do_all(GradeRank *me) {
    Shared *shared = me->context;
    int64_t mine = me->rank + 1;
    uint64_t begin_ns = 0, end_ns = 0;
    shared->plays[me->rank]++;
    me->status = -1;
    GRADE_EXPECT(me->grade, shared->given == 7, "given %d", shared->given);
    const double timeout_s = rig.breaks && rig.begun[me->rank]++ >= (rig.is_last ? 4 : 1) ? 0.5 : 3;
    GRADE_EXPECT(me->grade, me->group->timeout_s == timeout_s, "%g s", me->group->timeout_s);
    if (all_reduce(me, &mine) != 0) return;
    PgWork *work = start(me, &me->err);
    if (!work) return;
    if (watched_pg_work_wait(work, &begin_ns, &end_ns, &me->err) != 0) return;
    GRADE_EXPECT(me->grade, 0 < begin_ns && begin_ns < end_ns, "times");
    float *data = shared->data[me->rank];
    if (watched_pg_run(me->group, pg_broadcast(data, 7, PG_F32, 0), &me->err) != 0) return;
    me->status = 0;
    if (me->rank == 0) shared->sum = mine;
    inspect_log(me);
}

// ---- a check ------------------------------------------------------------------------------------

static void exit_early(GradeRank *me) {
    if (me->rank == rig.culprit) _exit(9);
}

static void expect_plays(Grade *grade) {
    for (int r = 0; r < rig.world; r++)
        GRADE_EXPECT(grade, rig.plays < 0 || context.plays[r] == rig.plays,
                     "rank %d plays %d times", r, context.plays[r]);
}

// Runs a single check.
static Outcome outcome_of(void (*run)(Grade *grade), void (*of_rank)(GradeRank *me), int count) {
    const GradeCheck one = {"a check", 1, NULL, run};
    memset(&context, 0, sizeof context);
    if (!rig.begun) rig.begun = grade_shared(MOST * sizeof *rig.begun);
    memset(rig.begun, 0, MOST * sizeof *rig.begun);
    rig.of_rank = of_rank;
    rig.plays = count;
    return supervise_check(&one, "no file", "/tmp", rig.is_last);
}

// wanted: "": passed; otherwise the sentence, whose # is the culprit. A * at its end stands for any
// text.
static void expect(Outcome outcome, const char *wanted) {
    char text[SENTENCE_MAX];
    snprintf(text, sizeof text, "%s", wanted);
    for (char *c = strchr(text, '#'); c; c = strchr(c, '#')) *c = (char)('0' + rig.culprit);
    const size_t length = strlen(text);
    const bool whole = length == 0 || text[length - 1] != '*';
    if (strncmp(outcome.sentence, text, whole ? SENTENCE_MAX : length - 1) != 0)
        fail_msg("\"%s\", not \"%s\"", outcome.sentence, text);
    assert_int_equal(outcome.result, *wanted ? RESULT_MISS : RESULT_PASS);
}

#endif
