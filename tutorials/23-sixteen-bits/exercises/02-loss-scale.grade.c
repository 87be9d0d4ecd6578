/* 02-loss-scale.grade.c: steps in which one rank, or none, has an inf or NaN. */
#include "tutorials/23-sixteen-bits/exercises/02-loss-scale.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_23_02;

enum { MOST_RANKS = 5, STEPS = 14, COUNT = 6, INTERVAL = 3, NOBODY = -1, EVERYBODY = -2 };

typedef struct Scene {
    int odd_one[STEPS]; // the rank with an inf or NaN; negative: none, or all
    float number;       // inf or NaN
    size_t place;       // its index
    LossScale first;    // before the first step
    bool skip[MOST_RANKS][STEPS];
    float scale[MOST_RANKS][STEPS];
    int good_steps[MOST_RANKS][STEPS];
    size_t calls;
} Scene;

static const LossScale FIRST = {.scale = 1024, .interval = INTERVAL};

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    LossScale scale = scene->first;
    for (int step = 0; step < STEPS && rank->err.status == STATUS_OK; step++) {
        float gradients[COUNT] = {1, -2, 65504, 0, 3e38f, 3e38f};
        int odd_one = scene->odd_one[step];
        if (odd_one == rank->rank || odd_one == EVERYBODY) gradients[scene->place] = scene->number;
        scene->skip[rank->rank][step] = true; // an output: its old value is arbitrary
        rank->status = STUDENT(rank->grade, update_scale)(
            rank->group, &scale, gradients, COUNT, &scene->skip[rank->rank][step], &rank->err);
        scene->scale[rank->rank][step] = scale.scale;
        scene->good_steps[rank->rank][step] = scale.good_steps;
    }
    if (rank->rank == 0) scene->calls = watch_calls(rank->log);
}

// In step 1 the odd rank's gradient contains `number` (inf or NaN). All ranks must skip that step;
// otherwise the student reads `sentence`.
static void one_rank(Grade *grade, int world, int odd_one, float number, size_t place,
                     const char *sentence) {
    Scene scene = {.number = number, .place = place, .first = FIRST};
    for (int step = 0; step < STEPS; step++) scene.odd_one[step] = step == 1 ? odd_one : NOBODY;
    grade_ranks(grade, world, run_rank, &scene);
    for (int r = 0; r < world; r++) {
        GRADE_EXPECT(grade, scene.skip[r][1] == scene.skip[0][1],
                     "One rank skipped the step and another took it: from now on their weights "
                     "differ.");
        GRADE_EXPECT(grade, !scene.skip[r][0],
                     "All gradients were finite, and the step was skipped. (Their sum need not be "
                     "finite.)");
    }
    GRADE_EXPECT(grade, scene.skip[0][1] || odd_one != EVERYBODY, "%s", sentence);
    GRADE_EXPECT(grade, scene.skip[0][1], "%s (rank %d of %d)", sentence, odd_one, world);
    GRADE_EXPECT(grade, scene.calls <= STEPS, "%zu collectives in %d steps: one each is enough.",
                 scene.calls, STEPS);
}

static void joint(Grade *grade) {
    static const char SENTENCE[] =
        "One rank had an infinite gradient, and no rank skipped the step: look at all of its "
        "numbers, not only the last; and with a minimum all ranks would have to have one.";
    one_rank(grade, 2, 1, INFINITY, 0, SENTENCE);
    one_rank(grade, 2, 0, INFINITY, 0, SENTENCE);
}

static void all_worlds(Grade *grade) {
    for (int w = 0; w < 4; w++)
        for (int odd_one = 0; odd_one < GRADE_WORLDS[w]; odd_one++)
            one_rank(grade, GRADE_WORLDS[w], odd_one, INFINITY, 0,
                     "One rank had an infinite gradient, and no rank skipped the step.");
}

// 256 infinities, which overflow a counter of 8 bits to 0, and a scale below 1.
static void run_many(GradeRank *rank) {
    enum { MANY = 256 };
    float gradients[MANY];
    LossScale scale = {.scale = 1, .interval = INTERVAL};
    for (int i = 0; i < MANY; i++) gradients[i] = INFINITY;
    for (int step = 1; step <= 3 && rank->status == 0; step++) {
        bool skip = false;
        rank->status = STUDENT(rank->grade, update_scale)(rank->group, &scale, gradients, MANY,
                                                          &skip, &rank->err);
        GRADE_EXPECT(rank->grade, skip,
                     "%d numbers were infinite, and the step was not skipped: a counter of 8 bits "
                     "is 0 again.",
                     MANY);
        GRADE_EXPECT(rank->grade, scale.scale == 1.0f / (float)(1 << step),
                     "The scale was 1, and after %d skipped steps it is %g: it is a float, and its "
                     "half need not be whole.",
                     step, (double)scale.scale);
    }
}

static void every_kind(Grade *grade) {
    one_rank(grade, 2, 1, NAN, 2, "A NaN was not noticed: it is not finite either.");
    one_rank(grade, 2, 1, -INFINITY, 2, "Minus infinity was not noticed.");
    one_rank(grade, 2, EVERYBODY, INFINITY, 2,
             "All ranks had an infinite gradient, and no rank skipped the step.");
    grade_ranks(grade, 2, run_many, &(char){0});
    one_rank(grade, 2, 1, INFINITY, COUNT - 1, "The last number was not checked.");
}

// After a checkpoint: the count of good steps is not 0.
static void went_on(Grade *grade) {
    Scene scene = {.first = {.scale = 8, .good_steps = 3, .interval = 4}};
    for (int step = 0; step < STEPS; step++) scene.odd_one[step] = NOBODY;
    grade_ranks(grade, 2, run_rank, &scene);
    GRADE_EXPECT(
        grade, scene.scale[0][0] == 16 && scene.scale[1][0] == 16,
        "good_steps was 3 in the beginning, and interval 4: the next good step doubles the "
        "scale.");
    for (int step = 1; step < STEPS; step++)
        GRADE_EXPECT(grade, scene.scale[0][step] == 16 * (float)(1 << step / 4),
                     "The interval was 4, and after %d more good steps the scale had grown by %g.",
                     step, (double)scene.scale[0][step] / 16);
}

static void scale_changes(Grade *grade) {
    Scene scene = {.odd_one = {NOBODY, NOBODY, 1, NOBODY, NOBODY, NOBODY, 0, 2, NOBODY, NOBODY,
                               NOBODY, NOBODY, NOBODY, NOBODY},
                   .number = INFINITY,
                   .first = FIRST};
    // halved at 2; doubled at 5; halved at 6 and 7; doubled at 10 and, three steps later, again
    static const float WANTED[STEPS] = {1024, 1024, 512, 512, 512, 1024, 512,
                                        256,  256,  256, 512, 512, 512,  1024};
    grade_ranks(grade, 3, run_rank, &scene);
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < 3; r++) {
            float got = scene.scale[r][step];
            GRADE_EXPECT(grade, got == WANTED[step] || step != 2 || got != 1024,
                         "The step was skipped, and the scale is as large as before.");
            GRADE_EXPECT(
                grade, got == WANTED[step] || step != 3 || got != 1024,
                "A skipped step was counted as a good one, or the count did not restart after it.");
            GRADE_EXPECT(grade, got == WANTED[step] || step != 5 || got != 512,
                         "%d good steps in a row, and the scale has not grown.", INTERVAL);
            GRADE_EXPECT(grade, got == WANTED[step] || step < 11,
                         "After the scale was doubled, the count must restart: the scale is "
                         "doubled every %d good steps, neither in each later step nor never again.",
                         INTERVAL);
            GRADE_EXPECT(grade, got == WANTED[step],
                         "After step %d the scale is %g, and should "
                         "be %g.",
                         step, (double)got, (double)WANTED[step]);
        }
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < 3; r++) {
            bool changed = step > 0 && WANTED[step] != WANTED[step - 1];
            GRADE_EXPECT(grade, !changed || scene.good_steps[r][step] == 0,
                         "The scale has changed, and good_steps is %d: it counts the good steps "
                         "since then, and is saved with the scale.",
                         scene.good_steps[r][step]);
        }
    grade_broken_ranks(grade, 2, run_rank, &scene);
    went_on(grade);
}

const Grader grader_23_02 = {"23-sixteen-bits/02-loss-scale",
                             {{"a joint decision", 4, NULL, joint},
                              {"one, three and five ranks", 1, "a joint decision", all_worlds},
                              {"every kind, everywhere", 2, "a joint decision", every_kind},
                              {"the scale", 3, "a joint decision", scale_changes}}};
