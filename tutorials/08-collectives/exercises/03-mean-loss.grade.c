/* 03-mean-loss.grade.c: equal shares, unequal ones, empty ones. */
#include "tutorials/08-collectives/exercises/03-mean-loss.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_08_03;

enum { MOST_RANKS = 5 };

typedef struct Scene {
    double sums[MOST_RANKS], means[MOST_RANKS];
    size_t rows[MOST_RANKS], calls[MOST_RANKS];
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    int r = rank->rank;
    scene->means[r] = -1000; // an output: its old value is arbitrary
    rank->status = STUDENT(rank->grade, mean_loss)(rank->group, scene->sums[r], scene->rows[r],
                                                   &scene->means[r], &rank->err);
    scene->calls[r] = watch_calls(rank->log);
}

// Every rank must return `wanted`; for `mistake` the student reads `sentence`.
static void check(Grade *grade, Scene scene, int world, double wanted, double mistake,
                  const char *sentence) {
    grade_ranks(grade, world, run_rank, &scene);
    for (int r = 0; r < world; r++) {
        double local = scene.rows[r] > 0 ? scene.sums[r] / (double)scene.rows[r] : 0.0;
        double got = scene.means[r];
        bool first_is_right = fabs(scene.means[0] - wanted) < 1e-12;
        GRADE_EXPECT(grade, scene.rows[r] > 0 || got != 0 || !first_is_right || wanted == 0,
                     "A rank without rows returns 0: the result is 0 only if no rank has rows.");
        GRADE_EXPECT(grade, world == 1 || got != local || local == wanted || !first_is_right,
                     "Only rank 0 knows the mean; a reduce leaves the others with nothing.");
        GRADE_EXPECT(grade, world == 1 || got != local || local == wanted,
                     "Each rank has the mean of its own rows: nothing was exchanged.");
        GRADE_EXPECT(grade, got != mistake && !(isnan(got) && isnan(mistake)), "%s", sentence);
        GRADE_EXPECT(grade, fabs(got - wanted) < 1e-13 || fabs(got - wanted) > 1e-10,
                     "The mean is off by %g: add nothing to the number of rows, and test for 0 "
                     "rows with an if.",
                     got - wanted);
        GRADE_EXPECT(grade, fabs(got - wanted) < 1e-12 || fabs(got - wanted) > 1e-6,
                     "The mean has the seven digits of a float: add doubles, with PG_F64. (%.9g "
                     "instead of %.9g)",
                     got, wanted);
        GRADE_EXPECT(grade, fabs(got - wanted) < 1e-12,
                     "%d ranks: rank %d has the mean %g, and it is %g.", world, r, got, wanted);
    }
}

static void equal_shares(Grade *grade) {
    check(grade, (Scene){.sums = {30}, .rows = {15}}, 1, 2.0, NAN, "A rank alone has NaN.");
    check(grade, (Scene){.sums = {15, 45}, .rows = {15, 15}}, 2, 2.0, 60.0,
          "The losses were added up, but not divided by the number of rows.");
    check(grade, (Scene){.sums = {1, 2, 3, 4, 5}, .rows = {1, 1, 1, 1, 1}}, 5, 3.0, 15.0,
          "The losses were added up, but not divided by the number of rows.");
}

static void unequal_shares(Grade *grade) {
    check(grade, (Scene){.sums = {12, 12, 6}, .rows = {8, 8, 1}}, 3, 30.0 / 17.0, 3.0,
          "This is the mean of the ranks' means: rows of a rank with few rows count for too much.");
    check(grade, (Scene){.sums = {3e9, 9e9}, .rows = {3000000000, 1000000000}}, 2, 3.0, NAN,
          "Many rows make the mean NaN.");
    check(grade, (Scene){.sums = {-3, -1}, .rows = {1, 1}}, 2, -2.0, 0.0,
          "A sum that is not above 0 was taken for no rows: ask how many rows there are.");
}

static void empty_shares(Grade *grade) {
    check(grade, (Scene){.sums = {8, 0, 4}, .rows = {2, 0, 1}}, 3, 4.0, NAN,
          "A rank without rows made the mean NaN.");
    check(grade, (Scene){.rows = {0, 0}}, 2, 0.0, NAN,
          "Without any rows the mean is 0 by agreement, and not 0 / 0.");
}

static void one_collective(Grade *grade) {
    Scene scene = {.sums = {1, 2, 3}, .rows = {1, 1, 1}};
    grade_ranks(grade, 3, run_rank, &scene);
    GRADE_EXPECT(grade, scene.calls[0] == 1,
                 "One collective is enough: send the sum and the number of rows together. (%zu "
                 "calls)",
                 scene.calls[0]);
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

const Grader grader_08_03 = {"08-collectives/03-mean-loss",
                             {{"equal shares", 3, NULL, equal_shares},
                              {"unequal shares", 3, "equal shares", unequal_shares},
                              {"ranks without rows", 2, "equal shares", empty_shares},
                              {"one collective", 2, "equal shares", one_collective}}};
