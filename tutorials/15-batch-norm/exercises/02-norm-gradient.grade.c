/* 02-norm-gradient.grade.c: known sums; each mistake gives a different number. */
#include "tutorials/15-batch-norm/exercises/02-norm-gradient.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_15_02;

enum { MOST_RANKS = 5, MOST_ROWS = 5 }; // more than any rank's rows

static const double WEIGHT = 2, INVSTD = 0.25;
static const double OLD = 1000; // contents of the outputs before the call

typedef struct Scene {
    size_t counts[MOST_RANKS], all_rows;
    double dy[MOST_RANKS][MOST_ROWS], xhat[MOST_RANKS][MOST_ROWS];
    double dx[MOST_RANKS][MOST_ROWS], dweight[MOST_RANKS], dbias[MOST_RANKS];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS];
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    NormRows rows = {.count = s->counts[r],
                     .all_rows = s->all_rows,
                     .dy = s->dy[r],
                     .xhat = s->xhat[r],
                     .weight = WEIGHT,
                     .invstd = INVSTD};
    NormGradients to = {.dx = s->dx[r], .dweight = OLD, .dbias = OLD};
    for (size_t i = 0; i < MOST_ROWS; i++) to.dx[i] = OLD;
    rank->status = STUDENT(rank->grade, norm_gradient)(rank->group, &rows, &to, &rank->err);
    s->dweight[r] = to.dweight;
    s->dbias[r] = to.dbias;
    s->calls[r] = watch_calls(rank->log);
    s->bytes[r] = watch_bytes(rank->log, PG_ALL_REDUCE);
    GRADE_EXPECT(rank->grade, to.dx[rows.count] == OLD,
                 "Something was written behind dx: rank %d has %zu rows.", r, rows.count);
}

// Rank r has counts[r] rows, with different numbers.
static void run(Grade *grade, Scene *s, int world) {
    s->all_rows = 0;
    for (int r = 0; r < world; r++) {
        for (size_t i = 0; i < s->counts[r]; i++) {
            s->dy[r][i] = 4.0 / 3 + (double)(r * r) + 3 * (double)i;
            s->xhat[r][i] = (r % 2 ? 1 : -1) + 0.25 * (double)i;
        }
        s->all_rows += s->counts[r];
    }
    grade_ranks(grade, world, run_rank, s);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, s->bytes[r] != 2 * sizeof(float),
                     "The two sums are doubles and were sent as floats: PG_F64.");
}

typedef struct Sums {
    double dy, dy_xhat;
} Sums;

static Sums sums_of(const Scene *s, int rank) {
    Sums sums = {0};
    for (size_t i = 0; i < s->counts[rank]; i++) {
        sums.dy += s->dy[rank][i];
        sums.dy_xhat += s->dy[rank][i] * s->xhat[rank][i];
    }
    return sums;
}

static double dx_of(const Scene *s, int rank, size_t i, Sums sums, double n) {
    return WEIGHT * INVSTD * (s->dy[rank][i] - sums.dy / n - s->xhat[rank][i] * sums.dy_xhat / n);
}

static bool is(double got, double wanted) {
    return fabs(got - wanted) < 1e-12 * (1 + fabs(wanted));
}

// dx of every row of every rank.
static void check_dx(Grade *grade, const Scene *s, int world) {
    Sums all = {0};
    for (int r = 0; r < world; r++) {
        all.dy += sums_of(s, r).dy;
        all.dy_xhat += sums_of(s, r).dy_xhat;
    }
    const Sums no_mean = {.dy_xhat = all.dy_xhat}, no_xhat = {.dy = all.dy};
    double n = (double)s->all_rows;
    for (int r = 0; r < world; r++)
        for (size_t i = 0; i < s->counts[r]; i++) {
            double got = s->dx[r][i], wanted = dx_of(s, r, i, all, n), own_n = (double)s->counts[r];
            GRADE_EXPECT(grade,
                         is(got, wanted) || (!is(got, dx_of(s, r, i, sums_of(s, r), own_n)) &&
                                             !is(got, dx_of(s, r, i, sums_of(s, r), n))),
                         "dx was computed with the sums of this rank's rows: the mean depends on "
                         "the rows of all ranks.");
            GRADE_EXPECT(grade, is(got, wanted) || !is(got, dx_of(s, r, i, all, own_n)),
                         "The sums of all ranks were divided by the rows of this rank; n counts "
                         "all rows.");
            GRADE_EXPECT(grade, is(got, wanted) || !is(got, wanted / (WEIGHT * INVSTD)),
                         "weight * invstd is missing: forward has multiplied by both.");
            GRADE_EXPECT(grade, is(got, wanted) || !is(got, dx_of(s, r, i, no_mean, n)),
                         "The term with A is missing: each row has a part in the mean.");
            GRADE_EXPECT(grade, is(got, wanted) || !is(got, dx_of(s, r, i, no_xhat, n)),
                         "The term with xhat is missing: each row has a part in the variance, "
                         "too.");
            GRADE_EXPECT(grade, is(got, wanted),
                         "%d ranks: dx of rank %d's row %zu is %g, and yours is %g.", world, r, i,
                         wanted, got);
        }
}

static void alone(Grade *grade) {
    Scene scene = {.counts = {4}};
    run(grade, &scene, 1);
    GRADE_EXPECT(grade,
                 !is(scene.dbias[0], OLD + sums_of(&scene, 0).dy) &&
                     !is(scene.dweight[0], OLD + sums_of(&scene, 0).dy_xhat),
                 "The old values of dweight or dbias were added, too: set them instead.");
    check_dx(grade, &scene, 1);
    GRADE_EXPECT(grade, !is(scene.dbias[0], sums_of(&scene, 0).dy_xhat),
                 "The gradients of weight and bias are exchanged.");
    GRADE_EXPECT(grade, is(scene.dbias[0], sums_of(&scene, 0).dy),
                 "The gradient of bias is the sum of dy, %g; yours is %g.", sums_of(&scene, 0).dy,
                 scene.dbias[0]);
    GRADE_EXPECT(grade, is(scene.dweight[0], sums_of(&scene, 0).dy_xhat),
                 "The gradient of weight is the sum of dy * xhat, %g; yours is %g.",
                 sums_of(&scene, 0).dy_xhat, scene.dweight[0]);
}

static void several(Grade *grade) {
    Scene two = {.counts = {2, 2}}, three = {.counts = {4, 1, 2}},
          five = {.counts = {1, 2, 1, 3, 1}};
    run(grade, &two, 2);
    check_dx(grade, &two, 2);
    run(grade, &three, 3);
    check_dx(grade, &three, 3);
    run(grade, &five, 5);
    check_dx(grade, &five, 5);
}

static void parameters(Grade *grade) {
    Scene scene = {.counts = {2, 3, 1}};
    run(grade, &scene, 3);
    for (int r = 0; r < 3; r++)
        GRADE_EXPECT(grade,
                     is(scene.dweight[r], sums_of(&scene, r).dy_xhat) &&
                         is(scene.dbias[r], sums_of(&scene, r).dy),
                     "The gradients of weight and bias are not this rank's part: "
                     "DistributedDataParallel will reduce them once more. (rank %d: %g and %g, not "
                     "%g and %g)",
                     r, scene.dweight[r], scene.dbias[r], sums_of(&scene, r).dy_xhat,
                     sums_of(&scene, r).dy);
}

static void empty_share(Grade *grade) {
    Scene scene = {.counts = {3, 0, 2}};
    run(grade, &scene, 3);
    check_dx(grade, &scene, 3);
    GRADE_EXPECT(grade, scene.dweight[1] == 0 && scene.dbias[1] == 0,
                 "A rank without rows has gradients of weight and bias, too, and they are 0: its "
                 "were %g and %g.",
                 scene.dweight[1], scene.dbias[1]);
}

static void one_collective(Grade *grade) {
    Scene scene = {.counts = {2, 2}};
    run(grade, &scene, 2);
    GRADE_EXPECT(grade, scene.calls[0] == 1,
                 "One all-reduce is enough: the two sums travel together. (%zu calls)",
                 scene.calls[0]);
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

const Grader grader_15_02 = {"15-batch-norm/02-norm-gradient",
                             {{"one rank", 2, NULL, alone},
                              {"two, three and five ranks", 3, "one rank", several},
                              {"weight and bias", 2, "one rank", parameters},
                              {"a rank without rows", 2, "two, three and five ranks", empty_share},
                              {"one collective", 1, "two, three and five ranks", one_collective}}};
