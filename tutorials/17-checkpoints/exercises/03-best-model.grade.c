/* 03-best-model.grade.c: several epochs; every rank's answer against the known one. */
#include "tutorials/17-checkpoints/exercises/03-best-model.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_17_03;

enum { MOST_RANKS = 5, MOST_EPOCHS = 4 };

typedef struct Scene {
    int epochs;
    size_t right[MOST_EPOCHS][MOST_RANKS], rows[MOST_EPOCHS][MOST_RANKS];
    double best[MOST_EPOCHS][MOST_RANKS];
    bool is_best[MOST_EPOCHS][MOST_RANKS];
    size_t calls[MOST_RANKS];
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    double best = -1;
    for (int e = 0; e < s->epochs; e++) {
        s->is_best[e][r] = true; // an output: its old value is arbitrary
        rank->status = STUDENT(rank->grade, best_model)(rank->group, s->right[e][r], s->rows[e][r],
                                                        &best, &s->is_best[e][r], &rank->err);
        s->best[e][r] = best;
    }
    s->calls[r] = watch_calls(rank->log);
}

// wanted: the best after each epoch; an epoch's best is new where it differs from the best before
// it.
static void check(Grade *grade, Scene s, int world, const double *wanted, const char *sentence) {
    grade_ranks(grade, world, run_rank, &s);
    for (int e = 0; e < s.epochs; e++)
        for (int r = 1; r < world; r++)
            GRADE_EXPECT(grade, s.is_best[e][r] == s.is_best[e][0],
                         "Rank 0 and rank %d give different answers: one saves, the other "
                         "continues, and they wait for each other.",
                         r);
    for (int e = 0; e < s.epochs; e++) {
        bool is_new = wanted[e] != (e == 0 ? -1.0 : wanted[e - 1]);
        GRADE_EXPECT(grade, !isnan(s.best[e][0]),
                     "Without any rows there is no accuracy: 0 / 0 became the best.");
        for (int r = 1; r < world; r++)
            GRADE_EXPECT(grade, s.best[e][r] == s.best[e][0],
                         "Rank 0 and rank %d remember different best accuracies, and will give "
                         "different answers later.",
                         r);
        GRADE_EXPECT(grade, s.best[e][0] == wanted[e] || s.best[e][0] != (double)(float)wanted[e],
                     "The best accuracy has the few digits of a float; it is a double.");
        GRADE_EXPECT(
            grade, s.best[e][0] != 0 || wanted[e] <= 0,
            "An accuracy of %g became 0: two integers were divided, and C truncates the result.",
            wanted[e]);
        GRADE_EXPECT(grade, s.is_best[e][0] == is_new, "%s (%d ranks, epoch %d)", sentence, world,
                     e);
        GRADE_EXPECT(grade, fabs(s.best[e][0] - wanted[e]) < 1e-12,
                     "%s (%d ranks, epoch %d: the best is %g, and yours is %g)", sentence, world, e,
                     wanted[e], s.best[e][0]);
    }
}

static void alone(Grade *grade) {
    const double wanted[] = {0.5, 0.75, 0.75, 0.8};
    check(grade, (Scene){4, {{10}, {15}, {12}, {16}}, {{20}, {20}, {20}, {20}}, {{0}}, {{0}}, {0}},
          1, wanted, "The best is the highest accuracy so far, and must be remembered.");
}

static void several(Grade *grade) {
    const double two[] = {0.5, 0.6, 0.6}, three[] = {0.5, 0.5, 16.0 / 24};
    check(grade,
          (Scene){3, {{8, 2}, {5, 7}, {9, 2}}, {{10, 10}, {10, 10}, {10, 10}}, {{0}}, {{0}}, {0}},
          2, two, "The best is the highest accuracy of all rows so far.");
    check(grade,
          (Scene){3,
                  {{4, 4, 4}, {3, 5, 2}, {8, 4, 4}},
                  {{8, 8, 8}, {8, 8, 8}, {8, 8, 8}},
                  {{0}},
                  {{0}},
                  {0}},
          3, three, "The best is the highest accuracy of all rows so far.");
}

static void many_rows(Grade *grade) {
    const double wanted[] = {3000000001.0 / 6000000001.0};
    check(
        grade,
        (Scene){1, {{1000000001, 2000000000}}, {{3000000000, 3000000001}}, {{0}}, {{0}}, {0}}, 2,
        wanted,
        "3,000,000,001 of 6,000,000,001 rows: an int ends at 2,147,483,647, and a float counts to "
        "16,777,216 only.");
}

static void unequal_shares(Grade *grade) {
    const double wanted[] = {12.0 / 22, 13.0 / 22};
    // The mean of the ranks' accuracies: 0.8, then 0.65.
    check(grade, (Scene){2, {{2, 10, 0}, {0, 13, 0}}, {{2, 20, 0}, {2, 20, 0}}, {{0}}, {{0}}, {0}},
          3, wanted,
          "This is the mean of the ranks' accuracies: rows of a rank with few rows count for too "
          "much.");
    many_rows(grade);
}

static void special_cases(Grade *grade) {
    const double equal[] = {0.5, 0.5}, none[] = {-1, 0.0, 0.0};
    check(grade, (Scene){2, {{5, 5}, {4, 6}}, {{10, 10}, {10, 10}}, {{0}}, {{0}}, {0}}, 2, equal,
          "An accuracy that was reached before was called better.");
    check(grade, (Scene){3, {{0, 0}, {0, 0}, {0, 0}}, {{0, 0}, {3, 3}, {0, 0}}, {{0}}, {{0}}, {0}},
          2, none, "Without any rows nothing is best; with an accuracy of 0 the first model is.");
}

static void one_collective(Grade *grade) {
    Scene s = {.epochs = 1, .right = {{1, 2, 3}}, .rows = {{4, 4, 4}}};
    grade_ranks(grade, 3, run_rank, &s);
    GRADE_EXPECT(grade, s.calls[0] == 1,
                 "One collective is enough: send both numbers together, and let every rank divide. "
                 "(%zu calls)",
                 s.calls[0]);
    grade_broken_ranks(grade, 2, run_rank, &s);
}

const Grader grader_17_03 = {"17-checkpoints/03-best-model",
                             {{"one rank", 2, NULL, alone},
                              {"two and three ranks", 3, "one rank", several},
                              {"unequal shares", 2, "two and three ranks", unequal_shares},
                              {"ties, and no rows", 2, "two and three ranks", special_cases},
                              {"one collective", 1, "two and three ranks", one_collective}}};
