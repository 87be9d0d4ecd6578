/* 01-accumulate.grade.c: known sums; each mistake gives another number. */
#include "tutorials/18-accumulate-and-clip/exercises/01-accumulate.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_18_01;

enum { MOST_RANKS = 5, MOST_BATCHES = 4, COUNT = 6 };

typedef struct Scene {
    size_t batches[MOST_RANKS], rows[MOST_RANKS][MOST_BATCHES];
    float gradients[MOST_RANKS][COUNT + 1]; // the last must not change
    size_t calls[MOST_RANKS], bytes[MOST_RANKS];
} Scene;

// The mean of a micro-batch's rows.
static float mean_of(int rank, size_t m, size_t i) {
    return (float)(1 + rank * rank * 3) + (float)(8 * m * m) + 0.5f * (float)i;
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    float sums[MOST_BATCHES][COUNT];
    MicroBatch micro[MOST_BATCHES];
    for (size_t m = 0; m < s->batches[r]; m++) {
        for (size_t i = 0; i < COUNT; i++) sums[m][i] = (float)s->rows[r][m] * mean_of(r, m, i);
        micro[m] = (MicroBatch){s->rows[r][m], sums[m]};
    }
    for (size_t i = 0; i <= COUNT; i++) s->gradients[r][i] = 1000;
    rank->status = STUDENT(rank->grade, accumulate)(rank->group, micro, s->batches[r],
                                                    s->gradients[r], COUNT, &rank->err);
    GRADE_EXPECT(rank->grade, s->gradients[r][COUNT] == 1000,
                 "Something was written behind the gradient, which has %d numbers.", COUNT);
    s->calls[r] = watch_calls(rank->log);
    for (size_t i = 0; i < rank->log->count; i++) s->bytes[r] += rank->log->events[i].bytes;
}

typedef struct Sums { // of element 0
    double all, rows, last, last_rows, of_means;
} Sums;

static Sums sums_of(const Scene *s, int first, int end) {
    Sums sums = {0};
    for (int r = first; r < end; r++) {
        double means = 0;
        for (size_t m = 0; m < s->batches[r]; m++) {
            double rows = (double)s->rows[r][m], sum = rows * (double)mean_of(r, m, 0);
            sums.all += sum, sums.rows += rows, means += (double)mean_of(r, m, 0);
            if (m + 1 == s->batches[r]) sums.last += sum, sums.last_rows += rows;
        }
        if (s->batches[r] > 0) sums.of_means += means / (double)s->batches[r];
    }
    return sums;
}

static bool is(double got, double wanted) {
    return fabs(got - wanted) < 1e-5 * (1 + fabs(wanted));
}

static void check(Grade *grade, Scene *s, int world) {
    grade_ranks(grade, world, run_rank, s);
    Sums all = sums_of(s, 0, world);
    double wanted = all.all / all.rows;
    for (int r = world - 1; r >= 0; r--) {
        double got = (double)s->gradients[r][0];
        Sums own = sums_of(s, r, r + 1);
        if (is(got, wanted)) continue;
        GRADE_EXPECT(grade, !isnan(got),
                     "This is not a number: a rank without rows has divided 0 by 0. Divide by the "
                     "rows of all.");
        GRADE_EXPECT(grade,
                     !is(got, wanted + 1000 / all.rows) &&
                         !is(got, (all.all + 1000 * world) / all.rows),
                     "What stood in the gradient before was added, too.");
        GRADE_EXPECT(grade, !is(got, all.all),
                     "The gradients were added up, but not divided by the number of rows.");
        GRADE_EXPECT(grade, world == 1 || !is(got, own.all / own.rows),
                     "Each rank has the gradient of its own rows: nothing was exchanged.");
        GRADE_EXPECT(grade, !is(got, all.of_means / world),
                     "This is the mean of means: rows of a small micro-batch count for too much.");
        GRADE_EXPECT(grade, !is(got, all.last / all.last_rows) && !is(got, all.last / all.rows),
                     "Only the last micro-batch is there: the gradients are to be added, and not "
                     "replaced.");
        GRADE_EXPECT(grade, !is(got, wanted / world),
                     "It was divided by the number of ranks as well as by the number of rows.");
        GRADE_EXPECT(grade, is((double)s->gradients[0][0], got),
                     "The ranks have different gradients: some micro-batches were added after the "
                     "reduction, and only at home.");
        grade_miss(grade, "%d ranks: the mean over all rows is %g, and rank %d has %g.", world,
                   wanted, r, got);
    }
    for (int r = 0; r < world; r++)
        for (size_t i = 1; i < COUNT; i++)
            GRADE_EXPECT(grade, is((double)s->gradients[r][i], wanted + 0.5 * (double)i),
                         "The first number of the gradient is right, and number %zu is not.", i);
}

static void alone(Grade *grade) {
    Scene equal = {.batches = {3}, .rows = {{4, 4, 4}}};
    check(grade, &equal, 1);
}

static void equal_ranks(Grade *grade) {
    Scene two = {.batches = {2, 2}, .rows = {{4, 4}, {4, 4}}};
    Scene five = {.batches = {2, 2, 2, 2, 2}, .rows = {{2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}}};
    check(grade, &two, 2);
    check(grade, &five, 5);
}

static void unequal(Grade *grade) {
    Scene last_is_small = {.batches = {4}, .rows = {{8, 8, 8, 6}}};
    Scene three = {.batches = {2, 2, 2}, .rows = {{8, 2}, {4, 4}, {1, 5}}};
    Scene counts = {.batches = {3, 1}, .rows = {{4, 4, 4}, {4}}};
    check(grade, &last_is_small, 1);
    check(grade, &three, 3);
    check(grade, &counts, 2);
}

static void empty_rank(Grade *grade) {
    Scene three = {.batches = {2, 0, 1}, .rows = {{3, 3}, {0}, {2}}};
    check(grade, &three, 3);
}

static void once(Grade *grade) {
    Scene s = {.batches = {4, 4}, .rows = {{2, 2, 2, 2}, {2, 2, 2, 2}}};
    check(grade, &s, 2);
    GRADE_EXPECT(grade, s.bytes[0] <= COUNT * sizeof(float) + 8 && s.calls[0] <= 2,
                 "Gradients were sent for every micro-batch, which no_sync must avoid. (%zu bytes; "
                 "one gradient has %zu)",
                 s.bytes[0], COUNT * sizeof(float));
    grade_broken_ranks(grade, 2, run_rank, &s);
}

const Grader grader_18_01 = {"18-accumulate-and-clip/01-accumulate",
                             {{"one rank", 2, NULL, alone},
                              {"equal ranks", 2, "one rank", equal_ranks},
                              {"unequal micro-batches", 3, "equal ranks", unequal},
                              {"a rank without rows", 1, "equal ranks", empty_rank},
                              {"sent once", 2, "equal ranks", once}}};
