/* 01-error-feedback.grade.c: eight steps with the same gradients, smaller and larger than a unit.
 * All numbers are multiples of 1/16, so that every sum is exact.
 */
#include "tutorials/24-powersgd/exercises/01-error-feedback.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_24_01;

enum { MOST_RANKS = 5, STEPS = 8, COUNT = 5 };

#define UNIT 0.5f

typedef struct Scene {
    float gradients[MOST_RANKS][STEPS][COUNT]; // the student's results
    float errors[MOST_RANKS][STEPS][COUNT];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS];
} Scene;

// Under half a unit; under half on even ranks and over it on odd ones; more units than
// 16 bits count; negative; 0.
static float number(int rank, int i) {
    static const float NUMBERS[COUNT] = {0.125f, 0.1875f, 20001.1875f, -0.1875f, 0.0f};
    static const float ON_ODD_RANKS[COUNT] = {0.0625f, 0.125f, 0.0625f, 0.0625f, 0.0f};
    return NUMBERS[i] + (rank % 2 ? ON_ODD_RANKS[i] : 0.0f);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    float *error = grade_fenced(rank->grade, COUNT * sizeof *error);
    int32_t *wire = grade_fenced(rank->grade, COUNT * sizeof *wire);
    for (int step = 0; step < STEPS && rank->err.status == STATUS_OK; step++) {
        float *gradient = scene->gradients[rank->rank][step];
        for (int i = 0; i < COUNT; i++) gradient[i] = number(rank->rank, i);
        rank->status = STUDENT(rank->grade, average_in_units)(rank->group, gradient, error, wire,
                                                              COUNT, UNIT, &rank->err);
        for (int i = 0; i < COUNT; i++) scene->errors[rank->rank][step][i] = error[i];
    }
    scene->calls[rank->rank] = watch_calls(rank->log);
    scene->bytes[rank->rank] = watch_bytes(rank->log, PG_ALL_REDUCE);
}

static float rounded(float number_) {
    return UNIT * nearbyintf(number_ / UNIT);
}

// The first step has nothing to add yet: the plain rounded mean.
static void first_step(Grade *grade, int world, Scene *scene) {
    grade_ranks(grade, world, run_rank, scene);
    for (int r = world - 1; r >= 0; r--)
        for (int i = 0; i < COUNT; i++) {
            float sum = 0, exact = 0, up = 0, got = scene->gradients[r][0][i];
            for (int k = 0; k < world; k++) up += UNIT * roundf(number(k, i) / UNIT);
            for (int k = 0; k < world; k++) sum += rounded(number(k, i)), exact += number(k, i);
            float mean = sum / (float)world;
            GRADE_EXPECT(grade, world != 3 || got == mean || got != mean / UNIT,
                         "This is the mean of the numbers of units; each is a unit large.");
            GRADE_EXPECT(grade, got == mean || got != sum,
                         "This is the sum of the sent values; the gradient is their mean.");
            GRADE_EXPECT(grade, i > 0 || got == mean || got != number(r, i),
                         "The gradients are as they were: nothing was averaged.");
            GRADE_EXPECT(grade, got == mean || got != exact / (float)world,
                         "This is the exact mean: nothing was rounded to a multiple of the unit.");
            GRADE_EXPECT(grade, got == mean || got != up / (float)world,
                         "A number in the middle of two was rounded away from 0; nearbyint takes "
                         "the even one.");
            GRADE_EXPECT(grade, got == mean, "%d ranks: the sent values have the mean %g, not %g.",
                         world, (double)mean, (double)got);
        }
}

static void two_ranks(Grade *grade) {
    static Scene three, scene;
    first_step(grade, 3, &three);
    first_step(grade, 2, &scene);
}

static void all_worlds(Grade *grade) {
    static Scene scenes[4];
    for (int w = 0; w < 4; w++) first_step(grade, GRADE_WORLDS[w], &scenes[w]);
}

static void check_error(Grade *grade, const Scene *scene, int world, int r, int i) {
    float first = number(r, i) - rounded(number(r, i)), got = scene->errors[r][0][i], mean = 0;
    for (int k = 0; k < world; k++) mean += rounded(number(k, i)) / (float)world;
    GRADE_EXPECT(grade, got == first || got != 0.0f,
                 "The error stayed 0: the rounded part is lost forever.");
    GRADE_EXPECT(grade, got == first || got != -first,
                 "The error has the wrong sign: it is the wanted value minus the sent value.");
    GRADE_EXPECT(grade, got == first || got != number(r, i) - mean,
                 "The error was taken from the mean of all ranks; each rank keeps the error of its "
                 "own rounding.");
    GRADE_EXPECT(grade, got == first, "Rank %d wanted %g and sent %g, and its error is %g.", r,
                 (double)number(r, i), (double)rounded(number(r, i)), (double)got);
}

static void errors(Grade *grade) {
    Scene scene = {0};
    grade_ranks(grade, 2, run_rank, &scene);
    for (int i = 0; i < COUNT; i++)
        for (int r = 0; r < 2; r++) check_error(grade, &scene, 2, r, i);
}

// Many gradients, and another unit for each of two tensors.
static void run_many(GradeRank *rank) {
    enum { MANY = 5000 };
    static float gradient[MANY], error[MANY];
    static int32_t wire[MANY];
    for (int tensor = 0; tensor < 2 && rank->status == 0; tensor++) {
        const float unit = tensor == 0 ? 0.25f : 2.0f, wanted = tensor == 0 ? 3.0f : 4.0f;
        for (int i = 0; i < MANY; i++) gradient[i] = 3, error[i] = 0;
        rank->status = STUDENT(rank->grade, average_in_units)(rank->group, gradient, error, wire,
                                                              MANY, unit, &rank->err);
        for (int i = 0; i < MANY && rank->status == 0; i++)
            GRADE_EXPECT(rank->grade, gradient[i] == wanted && error[i] == 3 - wanted,
                         "%d gradients of 3 in units of %g: number %d is %g with the error %g, and "
                         "should be %g and %g.",
                         MANY, (double)unit, i, (double)gradient[i], (double)error[i],
                         (double)wanted, 3 - (double)wanted);
    }
}

// In every step the error is the part of gradient + old error that rounding loses.
static void nothing_lost(Grade *grade) {
    Scene scene = {0};
    grade_ranks(grade, 2, run_rank, &scene);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < COUNT; i++) {
            float error = 0;
            for (int step = 0; step < STEPS; step++) {
                float wanted = number(r, i) + error, old = error, got = scene.errors[r][step][i];
                error = wanted - rounded(wanted);
                GRADE_EXPECT(grade, got == error || got != number(r, i) - rounded(number(r, i)),
                             "The error was not added to the next gradient.");
                GRADE_EXPECT(grade, got == error || got != old + error,
                             "The old error was counted twice: the wanted value contains it.");
                GRADE_EXPECT(grade, got == error, "Step %d: the error is %g, and should be %g.",
                             step, (double)got, (double)error);
            }
        }
    float sent = 0;
    for (int step = 0; step < STEPS; step++) sent += scene.gradients[0][step][0];
    GRADE_EXPECT(grade, fabsf(sent - STEPS * (number(0, 0) + number(1, 0)) / 2) <= UNIT / 2,
                 "In %d steps the mean gradients were %g, and only %g was sent.", STEPS,
                 (double)(STEPS * (number(0, 0) + number(1, 0)) / 2), (double)sent);
    GRADE_EXPECT(grade,
                 scene.calls[0] == STEPS && scene.bytes[0] == sizeof(int32_t) * STEPS * COUNT,
                 "%zu collectives and %zu bytes in %d steps: one of %zu bytes in each is enough.",
                 scene.calls[0], scene.bytes[0], STEPS, sizeof(int32_t) * COUNT);
    grade_ranks(grade, 2, run_many, &(char){0});
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

const Grader grader_24_01 = {
    "24-powersgd/01-error-feedback",
    {{"the mean of what was sent", 3, NULL, two_ranks},
     {"one, three and five ranks", 2, "the mean of what was sent", all_worlds},
     {"what is owed", 2, "the mean of what was sent", errors},
     {"nothing is lost", 3, "what is owed", nothing_lost}}};
