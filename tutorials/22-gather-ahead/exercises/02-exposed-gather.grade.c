/* 02-exposed-gather.grade.c: timelines, most in whole seconds. */
#include "tutorials/22-gather-ahead/exercises/02-exposed-gather.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_22_02;

enum { MOST = 5 };

typedef struct Line {
    size_t units;
    double forward[MOST], backward[MOST], gather[MOST];
} Line;

typedef enum Way {
    RIGHT,
    NO_BACKWARD,
    LAST_AGAIN,
    FIRST_HIDDEN,
    ALWAYS_AHEAD,
    TOGETHER,
    NEGATIVE,
    OWN,
    FORWARD_TIMES,
    WAYS
} Way;

static const char *const SENTENCES[WAYS] = {
    [NO_BACKWARD] = "In backward the units are gathered again.",
    [LAST_AGAIN] = "The last unit is kept: its backward needs no all-gather.",
    [FIRST_HIDDEN] = "The first all-gather has nothing to hide behind: the device waits for all of "
                     "it.",
    [ALWAYS_AHEAD] = "Without `ahead` every all-gather is waited for.",
    [TOGETHER] = "The surplus time of one unit hides no part of a later all-gather, which begins "
                 "no earlier.",
    [NEGATIVE] = "A computation that is longer than the all-gather does not make up for others: "
                 "the device waits 0 seconds, and not less.",
    [OWN] = "An all-gather hides behind the unit before it, not behind its own.",
    [FORWARD_TIMES] = "In backward a unit computes backward_s, and not forward_s."};

static double left_over(double gather, double computation, bool ahead, Way way) {
    if (!ahead && way != ALWAYS_AHEAD) return gather;
    return way == NEGATIVE ? gather - computation : fmax(gather - computation, 0);
}

static double waits(const Line *line, bool ahead, Way way) {
    const double *g = line->gather;
    double sum = line->units == 0 || (way == FIRST_HIDDEN && ahead) ? 0 : g[0];
    double gathers = 0, computes = 0;
    for (size_t u = 1; u < line->units; u++) {
        const double f = line->forward[way == OWN ? u : u - 1];
        const double b = way == FORWARD_TIMES ? line->forward[u] : line->backward[u];
        sum += left_over(g[u], f, ahead, way);
        if (way != NO_BACKWARD) sum += left_over(g[u - 1], b, ahead, way);
        gathers += g[u] + g[u - 1];
        computes += f + b;
    }
    if (way == LAST_AGAIN && line->units > 0) sum += g[line->units - 1];
    if (way == TOGETHER && line->units > 0)
        return g[0] + left_over(gathers, computes, ahead, RIGHT);
    return sum;
}

static void ask(Grade *grade, const Line *line, bool ahead) {
    const double right = waits(line, ahead, RIGHT);
    double got = GRADE_CALL(grade, exposed_gather_s, line->forward, line->backward, line->gather,
                            line->units, ahead);
    for (Way way = RIGHT + 1; way < WAYS; way++)
        GRADE_EXPECT(grade, fabs(got - right) < 1e-9 || fabs(got - waits(line, ahead, way)) > 1e-9,
                     "%s", SENTENCES[way]);
    GRADE_EXPECT(grade, fabs(got - right) < 1e-9 || fabs(got - right) > 1e-5,
                 "The seconds have the seven digits of a float: add doubles.");
    GRADE_EXPECT(grade, fabs(got - right) < 1e-9,
                 "%zu units, %s: the device waits %g seconds, and not %g.", line->units,
                 ahead ? "gathered ahead" : "not ahead", right, got);
}

static const Line ONE = {1, {3}, {6}, {4}};
static const Line EXAMPLE = {2, {3, 3}, {6, 6}, {4, 4}};
static const Line THREE = {3, {8, 2, 5}, {7, 3, 11}, {6, 9, 16}};
static const Line TENTHS = {3, {0.1, 0.2, 0.7}, {0.3, 0.4, 0.2}, {0.9, 1.1, 0.6}};
static const Line FIVE = {5, {1, 20, 3, 40, 7}, {2, 30, 5, 60, 9}, {10, 4, 33, 8, 21}};

static void not_ahead(Grade *grade) {
    ask(grade, &ONE, false);
    ask(grade, &EXAMPLE, false);
    ask(grade, &THREE, false);
    ask(grade, &FIVE, false);
}

static void ahead(Grade *grade) {
    ask(grade, &ONE, true);
    ask(grade, &EXAMPLE, true);
    ask(grade, &THREE, true);
    ask(grade, &FIVE, true);
}

static void corners(Grade *grade) {
    ask(grade, &(Line){0}, true);
    ask(grade, &(Line){0}, false);
    ask(grade, &TENTHS, true);
    ask(grade, &TENTHS, false);
    ask(grade, &(Line){4, {9, 9, 9, 9}, {9, 9, 9, 9}, {1, 2, 3, 4}}, true);
    ask(grade, &(Line){4, {0, 0, 0, 0}, {0, 0, 0, 0}, {1, 2, 4, 8}}, true);
}

const Grader grader_22_02 = {"22-gather-ahead/02-exposed-gather",
                             {{"not ahead", 3, NULL, not_ahead},
                              {"ahead", 5, "not ahead", ahead},
                              {"corners", 2, "ahead", corners}}};
