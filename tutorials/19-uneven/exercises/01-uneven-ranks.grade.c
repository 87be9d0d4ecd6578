/* 01-uneven-ranks.grade.c: which batches each rank used, and which steps it took. */
#include "tutorials/19-uneven/exercises/01-uneven-ranks.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_19_01;

enum { MOST_RANKS = 5, MOST_STEPS = 16 };

typedef struct Scene {
    bool cancels; // the first batches' gradients add up to 0 on two ranks
    size_t batches[MOST_RANKS];
    size_t used[MOST_RANKS], too_far[MOST_RANKS];
    double steps[MOST_RANKS][MOST_STEPS];
    size_t count[MOST_RANKS];
} Scene;

typedef struct Player {
    Scene *scene;
    int rank;
} Player;

static double number(const Scene *s, int rank, size_t batch) {
    if (s->cancels && batch == 0) return rank == 0 ? 64 : -64;
    return (double)(1 << rank) + 64 * (double)batch + 1.0 / 3;
}

static double gradient(void *context, size_t batch) {
    const Player *player = context;
    Scene *s = player->scene;
    if (batch >= s->batches[player->rank]) s->too_far[player->rank]++;
    s->used[player->rank]++;
    return number(s, player->rank, batch);
}

static void step(void *context, double mean) {
    const Player *player = context;
    size_t *count = &player->scene->count[player->rank];
    if (*count < MOST_STEPS) player->scene->steps[player->rank][*count] = mean;
    ++*count;
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    Player player = {s, rank->rank};
    Training training = {&player, s->batches[rank->rank], gradient, step};
    rank->status = STUDENT(rank->grade, train_uneven)(rank->group, &training, &rank->err);
}

static void check_counts(Grade *grade, const Scene *s, int world, size_t longest) {
    for (int r = 0; r < world; r++) {
        GRADE_EXPECT(grade, s->too_far[r] == 0,
                     "Rank %d was asked for the gradient of a batch that it does not have.", r);
        GRADE_EXPECT(grade, s->used[r] <= s->batches[r],
                     "Rank %d used %zu batches and has %zu: when it had no more, one was used "
                     "again.",
                     r, s->used[r], s->batches[r]);
        GRADE_EXPECT(grade, s->used[r] == s->batches[r],
                     "Rank %d used %zu of its %zu batches: the rest of the data was thrown away.",
                     r, s->used[r], s->batches[r]);
        GRADE_EXPECT(grade, s->count[r] <= longest,
                     "Rank %d took %zu steps, and the longest rank has %zu batches: when no rank "
                     "has a batch, there is no step.",
                     r, s->count[r], longest);
        GRADE_EXPECT(grade, s->count[r] == longest,
                     "Rank %d took %zu steps and others %zu: the replicas are no longer equal.", r,
                     s->count[r], longest);
    }
}

static void check(Grade *grade, Scene s, int world) {
    grade_ranks(grade, world, run_rank, &s);
    size_t longest = 0;
    for (int r = 0; r < world; r++) longest = s.batches[r] > longest ? s.batches[r] : longest;
    GRADE_EXPECT(grade, !s.cancels || s.count[0] > 0,
                 "It stopped because the gradients added up to 0. That may happen; whether a rank "
                 "has a batch is seen from their number.");
    check_counts(grade, &s, world, longest);
    for (size_t k = 0; k < longest; k++) {
        double sum = 0;
        int active = 0;
        for (int r = 0; r < world; r++)
            if (k < s.batches[r]) sum += number(&s, r, k), active++;
        for (int r = 0; r < world; r++) {
            double got = s.steps[r][k];
            GRADE_EXPECT(grade, active == world || fabs(got - sum / world) > 1e-9,
                         "It was divided by all %d ranks, but in step %zu only %d had a batch: "
                         "the step is too short.",
                         world, k, active);
            GRADE_EXPECT(grade, active == 1 || sum == 0 || fabs(got - sum) > 1e-9,
                         "The gradients were added up, and not divided.");
            GRADE_EXPECT(
                grade, fabs(got - sum / active) < 1e-9 || fabs(got - sum / active) > 1e-4,
                "The mean has the few digits of a float: gradients are doubles, and PG_F64 "
                "adds them as such.");
            GRADE_EXPECT(grade, fabs(got - sum / active) < 1e-9,
                         "%d ranks: step %zu goes along %g, and rank %d took %g.", world, k,
                         sum / active, r, got);
        }
    }
}

static void alone(Grade *grade) {
    check(grade, (Scene){.batches = {3}}, 1);
}

static void equal_ranks(Grade *grade) {
    check(grade, (Scene){.batches = {3, 3}}, 2);
    check(grade, (Scene){.batches = {2, 2, 2, 2, 2}}, 5);
    check(grade, (Scene){.batches = {2, 2}, .cancels = true}, 2);
    Scene broken = {.batches = {2, 2}};
    grade_broken_ranks(grade, 2, run_rank, &broken);
}

static void uneven_ranks(Grade *grade) {
    check(grade, (Scene){.batches = {4, 2}}, 2);
    check(grade, (Scene){.batches = {2, 4}}, 2);
    check(grade, (Scene){.batches = {3, 5, 4}}, 3);
    check(grade, (Scene){.batches = {6, 1, 4, 2, 6}}, 5);
}

static void nothing(Grade *grade) {
    check(grade, (Scene){.batches = {0, 3, 1}}, 3);
    check(grade, (Scene){.batches = {0, 0}}, 2);
}

const Grader grader_19_01 = {"19-uneven/01-uneven-ranks",
                             {{"one rank", 2, NULL, alone},
                              {"equal ranks", 2, "one rank", equal_ranks},
                              {"uneven ranks", 4, "equal ranks", uneven_ranks},
                              {"a rank without any batch", 2, "uneven ranks", nothing}}};
