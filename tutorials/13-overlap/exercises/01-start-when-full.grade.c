/* 01-start-when-full.grade.c: the order of the calls made while gradients became complete, one by
 * one. Times are not judged; means are checked at the end, as a program without overlap computes
 * them, too.
 */
#include "tutorials/13-overlap/exercises/01-start-when-full.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_13_01;

enum { MOST_RANKS = 5, BUCKETS = 3, GRADIENTS = 6, PART = 4, MOST_FLOATS = 3 * PART, STEPS = 2 };

static const size_t HOLDS[BUCKETS] = {2, 1, 3}; // gradients of PART floats each

// Which bucket's gradient is complete first, second, ... Every rank has another order in `mixed`.
static const size_t IN_ORDER[GRADIENTS] = {0, 0, 1, 2, 2, 2};
static const size_t MIXED[MOST_RANKS][GRADIENTS] = {{1, 2, 0, 2, 0, 2},
                                                    {2, 2, 2, 0, 1, 0},
                                                    {0, 1, 0, 2, 2, 2},
                                                    {2, 0, 2, 1, 2, 0},
                                                    {1, 0, 2, 2, 2, 0}};

typedef struct Scene {
    bool mixed;
    int steps;
    size_t buckets; // number of buckets in use
    float buffers[MOST_RANKS][BUCKETS][MOST_FLOATS];
} Scene;

// Sums of powers of two: exact, also when divided by the number of ranks after adding.
static float number(int rank, size_t bucket, size_t i) {
    return (float)(1 << rank) + (float)(32 * (bucket + 1)) + (float)(256 * i);
}

typedef struct Watch { // of one rank, in one step
    Grade *grade;
    const Overlap *overlap;
    const WatchLog *log;
    size_t seen;             // events of the log that were checked
    size_t missing[BUCKETS]; // gradients
    size_t started;          // buckets
    int step;
} Watch;

// Checks the calls that one hook made.
static void look_at_hook(Watch *watch) {
    Grade *grade = watch->grade;
    for (; watch->seen < watch->log->count; watch->seen++) {
        const WatchEvent *event = &watch->log->events[watch->seen];
        GRADE_EXPECT(grade, event->kind != WATCH_RUN,
                     "pg_run waits for the other ranks, and backward with it: start the bucket, "
                     "and go on.");
        GRADE_EXPECT(grade, event->kind != WATCH_WAIT,
                     "A hook waited for a bucket, and backward with it: the time to wait is after "
                     "backward.");
        size_t b = 0;
        while (b < watch->overlap->count &&
               event->collective.receive != watch->overlap->buckets[b].buffer)
            b++;
        GRADE_EXPECT(grade, b < watch->overlap->count,
                     "Something was started that is no bucket's buffer.");
        GRADE_EXPECT(grade, watch->missing[b] == 0,
                     "A bucket was started before all of its gradients were complete. (bucket "
                     "%zu, of which %zu are missing)",
                     b, watch->missing[b]);
        GRADE_EXPECT(grade, b == watch->started,
                     "A bucket was started before a bucket with a lower number: other ranks have "
                     "another order. (bucket %zu, after %zu buckets)",
                     b, watch->started);
        watch->started++;
    }
}

static size_t full_in_line(const Watch *watch) {
    size_t full = 0;
    while (full < watch->overlap->count && watch->missing[full] == 0) full++;
    return full;
}

static size_t count_gradients(size_t buckets) {
    size_t count = 0;
    for (size_t b = 0; b < buckets; b++) count += HOLDS[b];
    return count;
}

// One backward: the gradients become complete in this order.
static void run_step(GradeRank *rank, Watch *watch, Overlap *overlap, const size_t *order) {
    const size_t gradients = count_gradients(overlap->count);
    size_t most = 0; // buckets that could have been started before the last gradient
    size_t filled[BUCKETS] = {0};
    STUDENT(rank->grade, overlap_begin)(overlap);
    for (size_t b = 0; b < BUCKETS; b++) watch->missing[b] = HOLDS[b];
    watch->started = 0;
    for (size_t i = 0; i < gradients; i++) {
        size_t b = order[i];
        for (size_t k = 0; k < PART; k++, filled[b]++)
            overlap->buckets[b].buffer[filled[b]] = number(rank->rank, b, filled[b]);
        watch->missing[b]--;
        if (STUDENT(rank->grade, overlap_ready)(overlap, b, &rank->err) != 0) return;
        look_at_hook(watch);
        if (i + 1 < gradients) most = full_in_line(watch);
        bool behind = watch->started < full_in_line(watch);
        GRADE_EXPECT(
            rank->grade, !behind || watch->step == 0,
            "In the second step no bucket was started: overlap_begin must reset the counters.");
        GRADE_EXPECT(rank->grade, !behind || watch->started == 0 || most == 0,
                     "A full bucket was left behind: one call may have to start several. (after "
                     "%zu gradients %zu buckets can start, and %zu have)",
                     i + 1, full_in_line(watch), watch->started);
        GRADE_EXPECT(rank->grade, !behind || most == 0,
                     "No bucket was started before backward was over: nothing is hidden. (after "
                     "%zu gradients of %zu)",
                     i + 1, gradients);
    }
    if (STUDENT(rank->grade, overlap_finish)(overlap, &rank->err) != 0) return;
    size_t waits = 0;
    for (; watch->seen < watch->log->count; watch->seen++)
        waits += watch->log->events[watch->seen].kind == WATCH_WAIT;
    GRADE_EXPECT(rank->grade, waits <= overlap->count,
                 "overlap_finish waited for a bucket twice: pg_work_wait frees the work. (%zu "
                 "waits, %zu buckets)",
                 waits, overlap->count);
    GRADE_EXPECT(rank->grade, waits == overlap->count,
                 "overlap_finish did not wait for every bucket: the optimizer would take "
                 "unfinished sums. (%zu waits, %zu buckets)",
                 waits, overlap->count);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    OverlapBucket buckets[BUCKETS] = {{0}};
    Overlap overlap = {.group = rank->group, .buckets = buckets, .count = scene->buckets};
    for (size_t b = 0; b < BUCKETS; b++)
        buckets[b] = (OverlapBucket){.buffer = scene->buffers[rank->rank][b],
                                     .floats = HOLDS[b] * PART,
                                     .gradients = HOLDS[b]};
    Watch watch = {.grade = rank->grade, .overlap = &overlap, .log = rank->log};
    for (; watch.step < scene->steps && rank->err.status == STATUS_OK; watch.step++)
        run_step(rank, &watch, &overlap, scene->mixed ? MIXED[rank->rank] : IN_ORDER);
}

// With a lost connection: a bucket cannot be started, or its wait fails.
static void run_broken_rank(GradeRank *rank) {
    OverlapBucket buckets[BUCKETS] = {{0}};
    Overlap overlap = {.group = rank->group, .buckets = buckets, .count = BUCKETS};
    float buffers[BUCKETS][PART] = {{0}};
    for (size_t b = 0; b < BUCKETS; b++)
        buckets[b] = (OverlapBucket){.buffer = buffers[b], .floats = PART, .gradients = 1};
    STUDENT(rank->grade, overlap_begin)(&overlap);
    const size_t order[BUCKETS] = {0, 2, 1}; // the last one starts two
    for (size_t i = 0; i < BUCKETS && rank->status == 0; i++)
        rank->status = STUDENT(rank->grade, overlap_ready)(&overlap, order[i], &rank->err);
    if (rank->status == 0)
        rank->status = STUDENT(rank->grade, overlap_finish)(&overlap, &rank->err);
}

static void check(Grade *grade, int world, bool mixed, int steps, size_t buckets) {
    static Scene scene;
    scene = (Scene){.mixed = mixed, .steps = steps, .buckets = buckets};
    grade_ranks(grade, world, run_rank, &scene);
    for (int rank = 0; rank < world; rank++)
        for (size_t b = 0; b < buckets; b++)
            for (size_t i = 0; i < HOLDS[b] * PART; i++) {
                float sum = 0, got = scene.buffers[rank][b][i];
                for (int r = 0; r < world; r++) sum += number(r, b, i);
                float scale = 1.0f / (float)world, mean = sum * scale;
                GRADE_EXPECT(grade, world == 1 || got != sum,
                             "This is the sum of the gradients: every step is as many times too "
                             "long as there are ranks.");
                GRADE_EXPECT(
                    grade, got == mean || fabsf(got - mean) > 1e-5f * mean,
                    "The mean is right except for its last bits: PG_AVG adds all ranks and then "
                    "multiplies by 1 / W, once. To divide by W, or each rank before, rounds "
                    "differently.");
                GRADE_EXPECT(grade, got == mean,
                             "%d ranks: bucket %zu has %g at %zu on rank %d, and the mean is %g.",
                             world, b, (double)got, i, rank, (double)mean);
            }
}

static void when_full(Grade *grade) {
    check(grade, 1, false, 1, BUCKETS);
}

static void in_line(Grade *grade) {
    check(grade, 1, true, 1, BUCKETS);
}

static void anew(Grade *grade) {
    check(grade, 1, false, STEPS, BUCKETS);
    check(grade, 1, false, STEPS, 2); // the last one does not exist
}

static void means(Grade *grade) {
    check(grade, 2, false, STEPS, BUCKETS);
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], true, STEPS, BUCKETS);
    grade_broken_ranks(grade, 2, run_broken_rank, &(char){0});
}

const Grader grader_13_01 = {
    "13-overlap/01-start-when-full",
    {{"each bucket when it is full", 4, NULL, when_full},
     {"in the order of the buckets", 2, "each bucket when it is full", in_line},
     {"the next step", 2, "each bucket when it is full", anew},
     {"the mean over all ranks", 2, "in the order of the buckets", means}}};
