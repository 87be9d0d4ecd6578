/* 01-agree-to-stop.grade.c: some epochs of validation, and the expected decisions. The ranks' own
 * losses rise and fall in opposition, so decisions by own losses would differ.
 */
#include "tutorials/26-hangs/exercises/01-agree-to-stop.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_26_01;

enum { MOST_RANKS = 5, EPOCHS = 8, PATIENCE = 3 };

typedef struct Scene {
    bool empty_rank; // rank 1 has no rows
    int patience;
    double best[MOST_RANKS][EPOCHS];
    bool stop[MOST_RANKS][EPOCHS];
    size_t calls[MOST_RANKS], barriers;
} Scene;

static size_t rows_of(const Scene *scene, int rank) {
    return scene->empty_rank && rank == 1 ? 0 : (size_t)(2 * rank + 1);
}

// A rank's own mean in an epoch.
static double own_mean(int rank, int epoch) {
    static const double LEVEL[EPOCHS] = {128, 64, 96, 90, 32, 64, 32, 64}; // 32: twice the same
    return LEVEL[epoch] + ((epoch + rank) % 2 ? 6.0 : -6.0) * (rank + 1);
}

static double mean_of_all(const Scene *scene, int world, int epoch) {
    double sum = 0, rows = 0;
    for (int r = 0; r < world; r++) {
        sum += own_mean(r, epoch) * (double)rows_of(scene, r);
        rows += (double)rows_of(scene, r);
    }
    return sum / rows;
}

static double mean_of_means(int world, int epoch) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += own_mean(r, epoch);
    return sum / world;
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    EarlyStop state = {.best = INFINITY, .patience = scene->patience};
    size_t rows = rows_of(scene, rank->rank);
    for (int epoch = 0; epoch < EPOCHS && rank->err.status == STATUS_OK; epoch++) {
        bool *stop = &scene->stop[rank->rank][epoch];
        double loss_sum = own_mean(rank->rank, epoch) * (double)rows;
        *stop = true; // an output: its old value is arbitrary
        rank->status = STUDENT(rank->grade, agree_to_stop)(rank->group, &state, loss_sum, rows,
                                                           stop, &rank->err);
        scene->best[rank->rank][epoch] = state.best;
    }
    scene->calls[rank->rank] = watch_calls(rank->log);
    if (rank->rank == 0) scene->barriers = watch_count(rank->log, PG_BARRIER);
}

// The best after the first epoch is that epoch's mean: any mean improves on INFINITY.
static void check_mean(Grade *grade, const Scene *scene, int world, int rank) {
    double got = scene->best[rank][0], wanted = mean_of_all(scene, world, 0);
    GRADE_EXPECT(grade, !isinf(got), "The first mean is better than none: best is still infinite.");
    if (got == wanted) return;
    GRADE_EXPECT(grade, scene->barriers == 0,
                 "A barrier lines the ranks up in time and tells them nothing: each decided by its "
                 "own rows.");
    GRADE_EXPECT(grade, rank == 0 || got != own_mean(0, 0),
                 "Rank 0 decided for all: they agree, but ignore the other ranks' rows.");
    GRADE_EXPECT(grade, got != own_mean(rank, 0) || (rank == 0 && scene->best[1][0] == got),
                 "Each rank decided by its own rows: one stops, and the others wait for it.");
    GRADE_EXPECT(grade, got != mean_of_means(world, 0),
                 "This is the mean of the ranks' means; they have different numbers of rows.");
    GRADE_EXPECT(grade, got != (double)(float)wanted,
                 "The mean has the few digits of a float: the losses are doubles, and PG_F64 adds "
                 "them as such.");
    grade_miss(grade, "%d ranks: the mean is %g, and rank %d has %g.", world, wanted, rank, got);
}

static void check(Grade *grade, int world, bool empty_rank) {
    Scene scene = {.empty_rank = empty_rank, .patience = PATIENCE};
    grade_ranks(grade, world, run_rank, &scene);
    for (int r = world - 1; r >= 0; r--) check_mean(grade, &scene, world, r);
}

static void two_ranks(Grade *grade) {
    check(grade, 2, false);
}

static void all_worlds(Grade *grade) {
    check(grade, 1, false);
    check(grade, 3, false);
    check(grade, 5, false);
}

static void without_rows(Grade *grade) {
    check(grade, 2, true);
    check(grade, 5, true);
}

static void check_patience(Grade *grade, int world, int most) {
    Scene scene = {.patience = most};
    double best = INFINITY;
    int waited = 0;
    grade_ranks(grade, world, run_rank, &scene);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        double mean = mean_of_all(&scene, world, epoch);
        waited = mean < best ? 0 : waited + 1;
        best = mean < best ? mean : best;
        GRADE_EXPECT(grade, scene.best[0][epoch] == best,
                     "Epoch %d: the best mean so far is %.17g, and best is %.17g.", epoch, best,
                     scene.best[0][epoch]);
        for (int r = 0; r < world; r++)
            GRADE_EXPECT(grade, scene.stop[r][epoch] == (waited >= most),
                         "%d epochs without a better mean (an equal one is not better), patience "
                         "%d: it %s.",
                         waited, most,
                         scene.stop[r][epoch] ? "stopped too early, or *stop was left as it was"
                                              : "did not stop");
    }
    GRADE_EXPECT(grade, scene.calls[0] <= EPOCHS,
                 "%zu collectives in %d epochs: one in each is enough.", scene.calls[0], EPOCHS);
}

// A rank that resumes from a checkpoint, with many rows.
static void run_again(GradeRank *rank) {
    EarlyStop state = {.best = 0.5, .waited = 2, .patience = 3};
    const size_t rows = 3000000000;
    bool stop = false;
    rank->status = STUDENT(rank->grade, agree_to_stop)(rank->group, &state, 0.75 * (double)rows,
                                                       rows, &stop, &rank->err);
    GRADE_EXPECT(
        rank->grade, state.best == 0.5,
        "3,000,000,000 rows with the mean 0.75, and best went from 0.5 to %g: an int ends at "
        "2,147,483,647.",
        state.best);
    GRADE_EXPECT(rank->grade, stop && state.waited == 3,
                 "state->waited was 2 in the beginning, and patience 3: one more epoch without a "
                 "better mean is too many.");
}

// A mean that improves by little, in a second training of the same process.
static void run_another(GradeRank *rank) {
    EarlyStop early = {.best = 0.5, .patience = 2}, late = {.best = 0.75, .patience = 2};
    const double less = 0.75 - 1e-9;
    bool stop = false;
    rank->status =
        STUDENT(rank->grade, agree_to_stop)(rank->group, &early, 8.0, 8, &stop, &rank->err);
    if (rank->status != 0) return;
    rank->status =
        STUDENT(rank->grade, agree_to_stop)(rank->group, &late, 8 * less, 8, &stop, &rank->err);
    GRADE_EXPECT(rank->grade, early.best == 0.5 && early.waited == 1,
                 "The state is the caller's: best was 0.5 and is %g.", early.best);
    GRADE_EXPECT(rank->grade, late.best < 0.75 && late.waited == 0,
                 "The best mean was 0.75, this one is smaller by 1e-9, and best is %.10g: any "
                 "smaller mean is better, and *state holds what is known.",
                 late.best);
}

// A training that has diverged.
static void run_with_nan(GradeRank *rank) {
    EarlyStop state = {.best = 0.5, .waited = 1, .patience = 3};
    bool stop = false;
    double loss_sum = rank->rank == 0 ? (double)NAN : 8.0;
    rank->status =
        STUDENT(rank->grade, agree_to_stop)(rank->group, &state, loss_sum, 8, &stop, &rank->err);
    GRADE_EXPECT(rank->grade, state.best == 0.5 && state.waited == 2 && !stop,
                 "The mean was NaN, and best went from 0.5 to %g, waited from 1 to %d: a NaN is "
                 "not better than anything.",
                 state.best, state.waited);
}

static void patience(Grade *grade) {
    for (int w = 0; w < 4; w++) check_patience(grade, GRADE_WORLDS[w], PATIENCE);
    check_patience(grade, 2, PATIENCE - 1);
    grade_ranks(grade, 2, run_again, &(char){0});
    grade_ranks(grade, 2, run_another, &(char){0});
    grade_ranks(grade, 2, run_with_nan, &(char){0});
    Scene scene = {.patience = PATIENCE};
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

const Grader grader_26_01 = {"26-hangs/01-agree-to-stop",
                             {{"the mean on two ranks", 3, NULL, two_ranks},
                              {"one, three and five ranks", 2, "the mean on two ranks", all_worlds},
                              {"a rank without rows", 2, "the mean on two ranks", without_rows},
                              {"patience", 3, "the mean on two ranks", patience}}};
