/* 01-merge-statistics.grade.c: one rank, equal shares, unequal ones, none, and rows far from 0. */
#include "tutorials/15-batch-norm/exercises/01-merge-statistics.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_15_01;

enum { MOST_RANKS = MERGE_MOST_RANKS, MOST_ROWS = 8 };

typedef struct Scene {
    double rows[MOST_RANKS][MOST_ROWS];
    size_t counts[MOST_RANKS];
    double mean[MOST_RANKS], var[MOST_RANKS];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS]; // bytes: of all-gathers
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    s->mean[r] = s->var[r] = -1;
    rank->status = STUDENT(rank->grade, merge_statistics)(rank->group, s->rows[r], s->counts[r],
                                                          &s->mean[r], &s->var[r], &rank->err);
    s->calls[r] = watch_calls(rank->log);
    s->bytes[r] = watch_bytes(rank->log, PG_ALL_GATHER);
}

static bool is(double got, double wanted) {
    return fabs(got - wanted) < 1e-9 * (1 + fabs(wanted));
}

static void run(Grade *grade, Scene *scene, int world) {
    grade_ranks(grade, world, run_rank, scene);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, !isnan(scene->mean[r]) && !isnan(scene->var[r]),
                     "A rank without rows made the statistics NaN: 0 / 0. (%d ranks)", world);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, scene->bytes[r] != 3 * sizeof(float),
                     "The three numbers are doubles and were sent as floats: PG_F64.");
}

static void expect(Grade *grade, const Scene *scene, int world, double mean, double var) {
    for (int r = 0; r < world; r++) {
        GRADE_EXPECT(grade, is(scene->mean[r], mean),
                     "%d ranks: rank %d has the mean %g, and it is %g.", world, r, scene->mean[r],
                     mean);
        GRADE_EXPECT(grade, is(scene->var[r], var),
                     "%d ranks: rank %d has the variance %g, and it is %g.", world, r,
                     scene->var[r], var);
    }
}

static const char N_TOO_EARLY[] =
    "n1 is the number of rows before the merge: m2 used the number of rows after it.";

static void alone(Grade *grade) {
    Scene scene = {.rows = {{1, 3, 5, 7}}, .counts = {4}};
    run(grade, &scene, 1);
    GRADE_EXPECT(grade, !is(scene.var[0], 20.0 / 3),
                 "This divides by n - 1. Batch norm normalises with the variance of the rows that "
                 "it has, and divides by n.");
    GRADE_EXPECT(grade, !is(scene.var[0], 21), "%s", N_TOO_EARLY);
    GRADE_EXPECT(grade, !is(scene.var[0], 20), "m2 was not divided by the number of rows.");
    expect(grade, &scene, 1, 4, 5);
}

static void equal_shares(Grade *grade) {
    Scene scene = {.rows = {{1, 3}, {5, 7}}, .counts = {2, 2}};
    run(grade, &scene, 2);
    GRADE_EXPECT(grade, !is(scene.mean[1], 6) || is(scene.mean[0], 6),
                 "Each rank has the statistics of its own rows: nothing was exchanged.");
    GRADE_EXPECT(grade, !is(scene.var[0], 1),
                 "This is the mean of the ranks' variances: how far their means lie apart is "
                 "missing.");
    GRADE_EXPECT(grade, !is(scene.var[0], 9), "%s", N_TOO_EARLY);
    GRADE_EXPECT(grade, !is(scene.var[0], 2),
                 "d is the distance between the two means before the merge; m2 used the new mean "
                 "in place of one of them.");
    expect(grade, &scene, 2, 4, 5);
    Scene odd = {.rows = {{1.0 / 3, 0.1}, {7.0 / 3, 0.7}}, .counts = {2, 2}};
    const double mean = (1.0 / 3 + 0.1 + 7.0 / 3 + 0.7) / 4;
    run(grade, &odd, 2);
    GRADE_EXPECT(grade, is(odd.mean[0], mean) || fabs(odd.mean[0] - mean) > 1e-5,
                 "The mean has the seven digits of a float (%.9g instead of %.9g): add, subtract "
                 "and divide doubles.",
                 odd.mean[0], mean);
}

// Two ranks of 50,000 rows: 0, 2, 0, 2, ... and 10, 12, 10, 12, ...
static void run_many(GradeRank *rank) {
    enum { MANY = 50000 };
    static double rows[MANY];
    double mean = 0, var = 0;
    for (int i = 0; i < MANY; i++) rows[i] = 10 * rank->rank + 2 * (i % 2);
    rank->status =
        STUDENT(rank->grade, merge_statistics)(rank->group, rows, MANY, &mean, &var, &rank->err);
    GRADE_EXPECT(rank->grade, rank->status != 0 || (is(mean, 6) && is(var, 26)),
                 "Twice %d rows have the mean 6 and the variance 26, not %g and %g: their product "
                 "is more than an int holds.",
                 MANY, mean, var);
}

static void unequal_shares(Grade *grade) {
    Scene three = {.rows = {{2, 2, 2, 2}, {4, 4}, {12}}, .counts = {4, 2, 1}};
    run(grade, &three, 3);
    GRADE_EXPECT(grade, !is(three.mean[0], 6),
                 "This is the mean of the ranks' means: rows of a rank with few rows count for too "
                 "much.");
    expect(grade, &three, 3, 4, 80.0 / 7);
    Scene five = {.rows = {{1}, {2, 2}, {4}, {8, 8, 8}, {3}}, .counts = {1, 2, 1, 3, 1}};
    run(grade, &five, 5);
    expect(grade, &five, 5, 4.5, 226.0 / 8 - 20.25);
    grade_ranks(grade, 2, run_many, &(char){0});
    Scene eight = {.rows = {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}},
                   .counts = {1, 1, 1, 1, 1, 1, 1, 1}};
    run(grade, &eight, 8);
    expect(grade, &eight, 8, 4.5, 5.25);
    Scene thirds = {.rows = {{1.0 / 3, 0.1}, {7.0 / 3}, {1e6 / 7, 0.7}, {1e-3}, {11.0 / 3}},
                    .counts = {2, 1, 2, 1, 1}};
    run(grade, &thirds, 5);
    for (int r = 1; r < 5; r++)
        GRADE_EXPECT(grade, thirds.mean[r] == thirds.mean[0] && thirds.var[r] == thirds.var[0],
                     "Rank 0 and rank %d differ in their last bits: all ranks must merge in the "
                     "order of the ranks, and none may begin with its own statistics.",
                     r);
    // In the order of the ranks the first two means cancel; in another one the third is lost.
    Scene apart = {.rows = {{1e17}, {-1e17}, {3}}, .counts = {1, 1, 1}};
    run(grade, &apart, 3);
    GRADE_EXPECT(grade, is(apart.mean[0], 1),
                 "1e17, -1e17 and 3, merged in the order of the ranks, have the mean 1, not %g: "
                 "another order rounds otherwise, and a run must not depend on it.",
                 apart.mean[0]);
}

static void empty_shares(Grade *grade) {
    Scene first = {.rows = {{0}, {1, 3}, {8}}, .counts = {0, 2, 1}};
    run(grade, &first, 3);
    expect(grade, &first, 3, 4, 26.0 / 3);
    Scene last = {.rows = {{1, 3}, {0}}, .counts = {2, 0}};
    run(grade, &last, 2);
    expect(grade, &last, 2, 2, 1);
}

static void far_from_zero(Grade *grade) {
    Scene scene = {.rows = {{1e9 + 1, 1e9 + 3}, {1e9 + 5, 1e9 + 7}}, .counts = {2, 2}};
    run(grade, &scene, 2);
    GRADE_EXPECT(grade, fabs(scene.var[0] - 5) < 1e-3 && fabs(scene.var[1] - 5) < 1e-3,
                 "Rows around 1000000000 with the variance 5 came out with %g: two large, nearly "
                 "equal numbers were subtracted.",
                 scene.var[0]);
}

static void one_collective(Grade *grade) {
    Scene scene = {.rows = {{1}, {2}, {3}}, .counts = {1, 1, 1}};
    run(grade, &scene, 3);
    GRADE_EXPECT(grade, scene.calls[0] == 1,
                 "One collective is enough: every rank can merge the three numbers of all. (%zu "
                 "calls)",
                 scene.calls[0]);
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

const Grader grader_15_01 = {"15-batch-norm/01-merge-statistics",
                             {{"one rank", 1, NULL, alone},
                              {"equal shares", 2, "one rank", equal_shares},
                              {"unequal shares", 2, "equal shares", unequal_shares},
                              {"ranks without rows", 2, "equal shares", empty_shares},
                              {"rows far from 0", 2, "equal shares", far_from_zero},
                              {"one collective", 1, "equal shares", one_collective}}};
