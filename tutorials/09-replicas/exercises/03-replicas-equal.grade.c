/* 03-replicas-equal.grade.c: equal ones, and differences of every small kind on every rank. */
#include "tutorials/09-replicas/exercises/03-replicas-equal.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_09_03;

enum { MOST_RANKS = 5, COUNT = 9 };

typedef enum Change {
    NOTHING,
    FIRST,
    UP,
    DOWN,
    UP_AND_DOWN, // two ranks differ: the odd rank and its successor
    LAST,
    LAST_BIT,
    SIGN_OF_ZERO,
    EXCHANGED,
    ALL_NAN,
    OTHER_NAN
} Change;

typedef struct Scene {
    Change change;
    int odd_one; // the rank that differs
    bool equal[MOST_RANKS];
    bool changed; // a rank's own weights were written to
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    float weights[COUNT], kept[COUNT], *scratch = grade_fenced(rank->grade, sizeof kept);
    bool odd = rank->rank == scene->odd_one;
    for (int i = 0; i < COUNT; i++) weights[i] = 0.5f + (float)i;
    weights[4] = 0.0f;
    if (scene->change == ALL_NAN || scene->change == OTHER_NAN) weights[3] = NAN;
    if (odd && scene->change == OTHER_NAN)
        memcpy(&weights[3], &(uint32_t){0x7fc00001}, sizeof weights[3]);
    if (odd && scene->change == FIRST) weights[0] = -1.0f;
    bool down = odd && scene->change == DOWN;
    if (odd && (scene->change == UP || scene->change == UP_AND_DOWN)) weights[1] += 0.0078125f;
    if (scene->change == UP_AND_DOWN) down = rank->rank == scene->odd_one + 1;
    if (down) weights[1] -= 0.0078125f; // its third byte becomes smaller by 1
    if (odd && scene->change == LAST) weights[COUNT - 1] = 77.0f;
    if (odd && scene->change == LAST_BIT) weights[0] = nextafterf(weights[0], 1.0f);
    if (odd && scene->change == SIGN_OF_ZERO) weights[4] = -0.0f;
    if (odd && scene->change == EXCHANGED) weights[1] = 2.5f, weights[2] = 1.5f;
    memcpy(kept, weights, sizeof kept);
    scene->equal[rank->rank] = scene->change != NOTHING && scene->change != ALL_NAN; // the untruth
    rank->status = STUDENT(rank->grade, replicas_equal)(rank->group, weights, scratch, COUNT,
                                                        &scene->equal[rank->rank], &rank->err);
    scene->changed = scene->changed || memcmp(kept, weights, sizeof kept) != 0;
}

// Whether rank 0 says that all are equal, though rank 1 of 2 has this change.
static bool overlooks(Grade *grade, Change change) {
    Scene scene = {.change = change, .odd_one = 1};
    grade_ranks(grade, 2, run_rank, &scene);
    return scene.equal[0];
}

// All ranks must return the same, correct answer.
static void ask(Grade *grade, int world, Change change, int odd_one, const char *sentence) {
    Scene scene = {.change = change, .odd_one = odd_one};
    bool truth = change == NOTHING || change == ALL_NAN;
    grade_ranks(grade, world, run_rank, &scene);
    for (int r = 1; r < world; r++)
        GRADE_EXPECT(grade, scene.equal[r] == scene.equal[0],
                     "The ranks do not agree: one says equal and another different. (%d ranks, "
                     "rank %d differs)",
                     world, odd_one);
    GRADE_EXPECT(grade, !scene.changed,
                 "The weights of a rank were overwritten: ask, and do not repair. The copy belongs "
                 "in scratch.");
    GRADE_EXPECT(grade, scene.equal[0] == truth, "%s (%d ranks)", sentence, world);
}

static void equal(Grade *grade) {
    for (int i = 0; i < 4; i++)
        ask(grade, GRADE_WORLDS[i], NOTHING, -1, "Equal weights were called different.");
}

static void one_differs(Grade *grade) {
    const char *sentence = "One rank differed, and all said equal: a minimum asks whether all do.";
    GRADE_EXPECT(grade, overlooks(grade, UP) == overlooks(grade, DOWN),
                 "It depends on which rank has the larger byte whether a difference is noticed: "
                 "memcmp's result has a sign, and only whether it is 0 counts.");
    ask(grade, 2, FIRST, 1, sentence);
    for (int i = 2; i < 4; i++)
        for (int odd_one = 0; odd_one < GRADE_WORLDS[i]; odd_one++)
            ask(grade, GRADE_WORLDS[i], FIRST, odd_one, sentence);
}

static void broken(Grade *grade) {
    Scene scene = {.odd_one = -1};
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

static void every_bit(Grade *grade) {
    ask(grade, 3, LAST, 2, "A difference in the last weight was not noticed: memcmp counts bytes.");
    ask(grade, 3, EXCHANGED, 1,
        "Two weights were exchanged on one rank, and it was not noticed: equal sums are not "
        "enough.");
    ask(grade, 3, UP_AND_DOWN, 1,
        "Two ranks differed in opposite directions, and all said equal: memcmp's result has a "
        "sign, and only whether it is 0 counts.");
    ask(grade, 3, LAST_BIT, 1, "The last bit of one weight differed, and it was called equal.");
}

static void bits_not_values(Grade *grade) {
    ask(grade, 3, ALL_NAN, -1,
        "The same NaN on all ranks was called different: compare bits and not values.");
    ask(grade, 3, SIGN_OF_ZERO, 2, "0 and -0 are equal values with different bits.");
    ask(grade, 3, OTHER_NAN, 1, "Two NaN of different bits were called equal: compare bits.");
}

const Grader grader_09_03 = {"09-replicas/03-replicas-equal",
                             {{"equal replicas", 2, NULL, equal},
                              {"one rank differs", 2, "equal replicas", one_differs},
                              {"every weight, every bit", 3, "one rank differs", every_bit},
                              {"bits and not values", 2, "equal replicas", bits_not_values},
                              {"a collective that fails", 1, "equal replicas", broken}}};
