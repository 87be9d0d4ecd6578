/* 02-sharded-step.grade.c: two steps against a whole optimizer on one rank; then the bytes moved.
 */
#include "tutorials/20-sharding/exercises/02-sharded-step.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_20_02;

enum { SHARE = 6, MOST_RANKS = 5, MOST = SHARE * MOST_RANKS, STEPS = 2, GUARD = 4 };

static const float FIRST = 8, BEHIND = 77; // velocity before the first step; behind the arrays

typedef struct Scene {
    int steps;
    float weights[MOST_RANKS][MOST + 1], velocity[MOST_RANKS][SHARE + GUARD];
    bool hands_out_weights[MOST_RANKS];
    size_t calls[MOST_RANKS], reduces[MOST_RANKS], scatters[MOST_RANKS], gathers[MOST_RANKS];
} Scene;

static float weight_of(size_t i) {
    return 1000 + (float)(i * 8);
}

// No rank's own number equals the mean of all.
static float gradient_of(int rank, int step, size_t i) {
    return (float)(15 * ((1 << rank) * (int)(i % 5 + 1) + step));
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    float gradients[MOST + 1], *weights = scene->weights[rank->rank];
    size_t count = SHARE * (size_t)rank->world;
    for (size_t i = 0; i < count; i++) weights[i] = weight_of(i);
    for (size_t i = 0; i < SHARE; i++) scene->velocity[rank->rank][i] = FIRST;
    weights[count] = gradients[count] = BEHIND;
    for (int step = 0; step < scene->steps; step++) {
        for (size_t i = 0; i < count; i++) gradients[i] = gradient_of(rank->rank, step, i);
        rank->status = STUDENT(rank->grade, sharded_step)(
            rank->group, weights, gradients, scene->velocity[rank->rank], SHARE, &rank->err);
    }
    GRADE_EXPECT(rank->grade, weights[count] == BEHIND && gradients[count] == BEHIND,
                 "Something was written behind the weights or the gradients.");
    for (size_t e = 0; e < rank->log->count; e++) {
        const Collective *c = &rank->log->events[e].collective;
        if (c->kind != PG_ALL_GATHER || rank->log->events[e].kind == WATCH_WAIT) continue;
        const float *send = c->send, *receive = c->receive;
        if ((send >= weights && send < weights + count) || receive == weights)
            scene->hands_out_weights[rank->rank] = true;
    }
    scene->calls[rank->rank] = watch_calls(rank->log);
    scene->reduces[rank->rank] = watch_count(rank->log, PG_ALL_REDUCE);
    scene->scatters[rank->rank] = watch_count(rank->log, PG_REDUCE_SCATTER);
    scene->gathers[rank->rank] = watch_count(rank->log, PG_ALL_GATHER);
}

// Element i after `steps` steps, if `scale` times the sum of ranks [first, end) is the gradient.
static float expected(size_t i, int steps, int first, int end, float scale, float momentum) {
    float weight = weight_of(i), velocity = FIRST;
    for (int step = 0; step < steps; step++) {
        float sum = 0;
        for (int r = first; r < end; r++) sum += gradient_of(r, step, i);
        velocity = momentum * velocity + sum * scale;
        weight -= RATE * velocity;
    }
    return weight;
}

static void check_element(Grade *grade, const Scene *scene, int world, int rank, size_t i) {
    int owner = (int)(i / SHARE);
    float got = scene->weights[rank][i], mean = 1.0f / (float)world;
    float wanted = expected(i, scene->steps, 0, world, mean, MOMENTUM);
    GRADE_EXPECT(grade, rank == owner || got != weight_of(i),
                 "Rank %d still has the old weights of rank %d's part: who steps a part has to "
                 "give it to the others.",
                 rank, owner);
    GRADE_EXPECT(grade, got != weight_of(i), "No rank has stepped element %zu.", i);
    GRADE_EXPECT(grade, world == 1 || got != expected(i, scene->steps, 0, world, 1, MOMENTUM),
                 "The gradient is the sum of the ranks', and their mean is wanted.");
    GRADE_EXPECT(grade,
                 world == 1 || got != expected(i, scene->steps, owner, owner + 1, 1, MOMENTUM),
                 "A rank has stepped its part by its own gradients: the gradients of the other "
                 "ranks' rows are missing.");
    GRADE_EXPECT(grade, owner == 0 || got != weight_of(i % SHARE) - (weight_of(i) - wanted),
                 "All ranks have stepped part 0: rank r's part begins at r times share.");
    GRADE_EXPECT(grade, got != expected(i, scene->steps, 0, world, mean, 0),
                 "The velocity was lost between two steps.");
    GRADE_EXPECT(grade, got == wanted,
                 "%d ranks, %d steps: rank %d has %g as weight %zu, and it is %g.", world,
                 scene->steps, rank, (double)got, i, (double)wanted);
}

static void check(Grade *grade, int world, int steps) {
    Scene scene = {.steps = steps};
    for (int r = 0; r < world; r++)
        for (int i = 0; i < GUARD; i++) scene.velocity[r][SHARE + i] = BEHIND;
    grade_ranks(grade, world, run_rank, &scene);
    for (int rank = world - 1; rank >= 0; rank--) { // the last offset is the largest
        for (int i = 0; i < GUARD; i++)
            GRADE_EXPECT(grade, scene.velocity[rank][SHARE + i] == BEHIND,
                         "Something was written behind velocity's %d elements: a rank keeps state "
                         "for its own part only.",
                         SHARE);
    }
    for (int rank = 0; rank < world; rank++)
        for (size_t i = 0; i < SHARE * (size_t)world; i++)
            check_element(grade, &scene, world, rank, i);
}

static void one_rank(Grade *grade) {
    check(grade, 1, 1);
}

static void several_ranks(Grade *grade) {
    check(grade, 2, 1);
    check(grade, 3, 1);
    check(grade, 5, 1);
}

// Parts of an odd length, longer than a fixed array.
static void run_long(GradeRank *rank) {
    enum { LONG = 5001 };
    static float weights[2 * LONG], gradients[2 * LONG], velocity[LONG];
    for (size_t i = 0; i < (size_t)2 * LONG; i++)
        weights[i] = (float)i, gradients[i] = (float)(4 + 8 * rank->rank);
    for (size_t i = 0; i < LONG; i++) velocity[i] = 16;
    rank->status = STUDENT(rank->grade, sharded_step)(rank->group, weights, gradients, velocity,
                                                      LONG, &rank->err);
    for (size_t i = 0; i < (size_t)2 * LONG && rank->status == 0; i++)
        GRADE_EXPECT(rank->grade, weights[i] == (float)i - 4,
                     "With parts of %d elements, element %zu is %g, and should be %g.", LONG, i,
                     (double)weights[i], (double)i - 4);
}

static void several_steps(Grade *grade) {
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], STEPS);
    grade_ranks(grade, 2, run_long, &(char){0});
}

static void two_collectives(Grade *grade) {
    Scene scene = {.steps = 1};
    grade_ranks(grade, 3, run_rank, &scene);
    GRADE_EXPECT(grade, scene.reduces[0] == 0,
                 "An all-reduce brings every sum to every rank, and of three sums this rank uses "
                 "one: a reduce-scatter is enough.");
    GRADE_EXPECT(grade, scene.calls[0] == 2 && scene.scatters[0] == 1 && scene.gathers[0] == 1,
                 "One reduce-scatter and one all-gather are enough. (%zu calls)", scene.calls[0]);
    for (int r = 0; r < 3; r++)
        GRADE_EXPECT(grade, scene.hands_out_weights[r],
                     "What was gathered are no weights: each rank steps its own part only, and "
                     "hands out the new weights. To step all of them on every rank saves no work.");
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

const Grader grader_20_02 = {
    "20-sharding/02-sharded-step",
    {{"one rank", 2, NULL, one_rank},
     {"two, three and five ranks", 3, "one rank", several_ranks},
     {"several steps", 3, "two, three and five ranks", several_steps},
     {"two collectives", 2, "two, three and five ranks", two_collectives}}};
