/* 01-one-ahead.grade.c: the gathers started and waited for by the time a unit is used. Times are
 * not measured.
 */
#include "tutorials/22-gather-ahead/exercises/01-one-ahead.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_22_01;

enum { MOST_RANKS = 5, MOST_UNITS = 5, SHARE = 6 };

typedef struct Scene {
    size_t units;
    int steps;
    bool backward; // runs backward, too
} Scene;

typedef struct Watch { // of one rank
    GradeRank *rank;
    size_t units;
    AheadUnit unit[MOST_UNITS];
    float part[MOST_UNITS][SHARE], whole[MOST_UNITS][SHARE * MOST_RANKS];
    bool started[MOST_UNITS]; // its all-gather was started after its last drop
    size_t seen, starts, waits;
} Watch;

static float weight_of(size_t unit, size_t i, int step) {
    return (float)(10000 * step) + (float)(1000 * (unit + 1) + i);
}

static void note_start(Watch *watch, const Collective *collective, size_t used) {
    Grade *grade = watch->rank->grade;
    size_t u = 0;
    while (u < watch->units && collective->receive != watch->whole[u]) u++;
    GRADE_EXPECT(grade, u < watch->units && collective->kind == PG_ALL_GATHER,
                 "Something was started that is no all-gather into a unit's `whole`.");
    GRADE_EXPECT(grade, !watch->started[u],
                 "Unit %zu was gathered for the use of unit %zu, and it was whole already, or "
                 "arriving.",
                 u, used);
    GRADE_EXPECT(grade, u == used || watch->started[used],
                 "The next unit was started before the unit that is needed now: the group's thread "
                 "runs one all-gather at a time, so that this one arrives last.");
    watch->started[u] = true;
}

// The events of one call of use_unit.
static void note_events(Watch *watch, size_t used) {
    for (; watch->seen < watch->rank->log->count; watch->seen++) {
        const WatchEvent *event = &watch->rank->log->events[watch->seen];
        if (event->kind == WATCH_RUN || event->kind == WATCH_START)
            note_start(watch, &event->collective, used);
        watch->starts += event->kind == WATCH_RUN || event->kind == WATCH_START;
        watch->waits += event->kind == WATCH_RUN || event->kind == WATCH_WAIT;
    }
}

static void check_use(Watch *watch, size_t used, int direction) {
    Grade *grade = watch->rank->grade;
    const bool has_next = direction > 0 ? used + 1 < watch->units : used > 0;
    const size_t next = direction > 0 ? used + 1 : used - 1;
    size_t there = 0;
    for (size_t u = 0; u < watch->units; u++) there += watch->started[u];
    GRADE_EXPECT(grade, watch->started[used],
                 "A unit that was dropped was not gathered again: unit %zu has old weights.", used);
    GRADE_EXPECT(grade, there <= 2,
                 "When unit %zu is used, %zu units have been started: two units are whole or "
                 "arriving at a time, and for more there is no memory.",
                 used, there);
    GRADE_EXPECT(grade, direction > 0 || !has_next || watch->started[next],
                 "In backward the previous unit is needed next, and was not started. (unit %zu)",
                 used);
    GRADE_EXPECT(grade, !has_next || watch->started[next],
                 "No other unit was started when unit %zu was used: its neighbour's all-gather "
                 "runs beside the computation.",
                 used);
    GRADE_EXPECT(grade, watch->starts - watch->waits <= (size_t)has_next,
                 "use_unit must return when unit %zu is whole: it returned before the unit's "
                 "all-gather was waited for.",
                 used);
    GRADE_EXPECT(grade, !has_next || watch->starts - watch->waits == 1,
                 "The next unit was waited for before this one computes: nothing is hidden. (unit "
                 "%zu)",
                 used);
}

static void check_weights(Watch *watch, size_t used, int step) {
    for (size_t i = 0; i < SHARE * (size_t)watch->rank->world; i++)
        GRADE_EXPECT(watch->rank->grade, watch->whole[used][i] == weight_of(used, i, step),
                     "Unit %zu is used, and weight %zu of it is %g, not %g.", used, i,
                     (double)watch->whole[used][i], (double)weight_of(used, i, step));
}

static bool use(Watch *watch, size_t u, int direction, int step) {
    GradeRank *rank = watch->rank;
    rank->status = STUDENT(rank->grade, use_unit)(watch->unit, watch->units, u, direction,
                                                  rank->group, &rank->err);
    note_events(watch, u);
    if (rank->status != 0) return false;
    check_use(watch, u, direction);
    check_weights(watch, u, step);
    return true;
}

static void drop(Watch *watch, size_t u) {
    STUDENT(watch->rank->grade, drop_unit)(&watch->unit[u]);
    watch->started[u] = false;
}

static bool run_step(Watch *watch, int step, bool backward) {
    for (size_t u = 0; u < watch->units; u++)
        for (size_t i = 0; i < SHARE; i++)
            watch->part[u][i] = weight_of(u, (size_t)watch->rank->rank * SHARE + i, step);
    for (size_t u = 0; u < watch->units; u++) {
        if (!use(watch, u, 1, step)) return false;
        if (u + 1 < watch->units || !backward) drop(watch, u);
    }
    for (size_t u = watch->units; backward && u-- > 0;) {
        if (!use(watch, u, -1, step)) return false;
        drop(watch, u);
    }
    return true;
}

static void run_rank(GradeRank *rank) {
    const Scene *scene = rank->context;
    Watch watch = {.rank = rank, .units = scene->units};
    for (size_t u = 0; u < watch.units; u++)
        watch.unit[u] = (AheadUnit){SHARE, watch.part[u], watch.whole[u], NULL, false};
    for (int step = 0; step < scene->steps; step++)
        if (!run_step(&watch, step, scene->backward)) return;
}

static void forward(Grade *grade) {
    grade_ranks(grade, 1, run_rank, (&(Scene){1, 1, false}));
    grade_ranks(grade, 2, run_rank, (&(Scene){2, 1, false}));
    grade_ranks(grade, 3, run_rank, (&(Scene){5, 2, false}));
}

static void backward(Grade *grade) {
    grade_ranks(grade, 2, run_rank, (&(Scene){2, 1, true}));
    grade_ranks(grade, 3, run_rank, (&(Scene){5, 1, true}));
}

static void several_steps(Grade *grade) {
    for (int i = 0; i < 4; i++)
        grade_ranks(grade, GRADE_WORLDS[i], run_rank, (&(Scene){4, 3, true}));
    grade_broken_ranks(grade, 3, run_rank, (&(Scene){3, 1, true}));
}

const Grader grader_22_01 = {"22-gather-ahead/01-one-ahead",
                             {{"forward", 4, NULL, forward},
                              {"backward", 3, "forward", backward},
                              {"several steps", 3, "backward", several_steps}}};
