/* 03-take-part.grade.c: every number of old ranks with every number of new ranks. */
#include "tutorials/20-sharding/exercises/03-take-part.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_20_03;

enum { MOST = 40, MOST_RANKS = 6, OLD = -2 }; // OLD: contents of the outputs before the call

static size_t share_of(size_t count, size_t world) {
    return (count + world - 1) / world;
}

static float number(size_t i) {
    return 100 + (float)i;
}

typedef struct Taken {
    size_t count;
    float mine[MOST + 1];
} Taken;

// An old rank's part is padded with -1 behind its numbers.
static Taken take(Grade *grade, size_t count, size_t old, size_t world, size_t rank) {
    float memory[MOST_RANKS][MOST + 1];
    const float *parts[MOST_RANKS];
    size_t share = share_of(count, old);
    for (size_t r = 0; r < old; r++) {
        for (size_t i = 0; i <= MOST; i++) memory[r][i] = -1;
        for (size_t i = 0; i < share && r * share + i < count; i++)
            memory[r][i] = number(r * share + i);
        parts[r] = memory[r];
    }
    Taken taken = {0};
    float *mine = grade_fenced(grade, sizeof taken.mine);
    for (size_t i = 0; i <= MOST; i++) mine[i] = OLD;
    const SavedState saved = {.count = count, .world = old, .parts = parts};
    taken.count = GRADE_CALL(grade, take_part, &saved, world, rank, mine);
    grade_out(grade, mine, sizeof taken.mine);
    memcpy(taken.mine, mine, sizeof taken.mine);
    return taken;
}

static void check(Grade *grade, size_t count, size_t old, size_t world) {
    size_t share = share_of(count, world), seen = 0;
    for (size_t rank = 0; rank < world; rank++) {
        Taken taken = take(grade, count, old, world, rank);
        size_t first = rank * share < count ? rank * share : count;
        size_t wanted = first + share < count ? share : count - first;
        GRADE_EXPECT(grade,
                     old == world || taken.count != share_of(count, old) || taken.count == wanted ||
                         rank > 0,
                     "The part is as long as it was with %zu ranks; there are %zu now.", old,
                     world);
        GRADE_EXPECT(grade, taken.count <= wanted,
                     "Rank %zu of %zu took %zu of %zu numbers, and its part has %zu: the array "
                     "ends first.",
                     rank, world, taken.count, count, wanted);
        for (size_t i = 0; i < taken.count; i++) {
            float got = taken.mine[i];
            GRADE_EXPECT(grade, got != 0 || i > 0, "The part begins at zero: the state was lost.");
            GRADE_EXPECT(grade, rank == 0 || got != number(i),
                         "Every rank takes the first numbers: a part begins at rank times share.");
            GRADE_EXPECT(grade, got != -1,
                         "Read behind an old part: where it ends, the next one begins.");
            GRADE_EXPECT(grade, got == number(first + i),
                         "From %zu ranks to %zu: rank %zu has %g at %zu, and it is %g.", old, world,
                         rank, (double)got, i, (double)number(first + i));
        }
        for (size_t i = taken.count; i <= MOST; i++)
            GRADE_EXPECT(grade, taken.count != wanted || taken.mine[i] == OLD,
                         "Rank %zu of %zu has %zu numbers, and behind them %g was written.", rank,
                         world, wanted, (double)taken.mine[i]);
        GRADE_EXPECT(grade, taken.count == wanted,
                     "Rank %zu of %zu took %zu numbers, and its part has %zu.", rank, world,
                     taken.count, wanted);
        seen += taken.count;
    }
    GRADE_EXPECT(grade, seen == count, "%zu of %zu numbers went on.", seen, count);
}

// A small model's number of weights: too many for a copy on the stack.
static void large(Grade *grade) {
    enum { MANY = 3000000 };
    static float first[MANY / 2], second[MANY / 2], mine[MANY];
    const float *parts[2] = {first, second};
    const SavedState saved = {.count = MANY, .world = 2, .parts = parts};
    for (size_t i = 0; i < MANY / 2; i++) {
        first[i] = number(i);
        second[i] = number(MANY / 2 + i);
    }
    size_t count = GRADE_CALL(grade, take_part, &saved, 1, 0, mine);
    GRADE_OUT(grade, mine);
    GRADE_EXPECT(grade, count == MANY, "From 2 ranks to 1: it took %zu of %d numbers.", count,
                 MANY);
    for (size_t i = 0; i < MANY; i++)
        GRADE_EXPECT(grade, mine[i] == number(i), "From 2 ranks to 1: number %zu of %d is %g.", i,
                     MANY, (double)mine[i]);
}

static void as_many_ranks(Grade *grade) {
    check(grade, 12, 3, 3);
}

static void fewer_ranks(Grade *grade) {
    check(grade, 12, 4, 2);
    check(grade, 12, 3, 1);
    large(grade);
}

static void more_ranks(Grade *grade) {
    check(grade, 12, 1, 4);
    check(grade, 12, 2, 3);
}

static void uneven(Grade *grade) {
    for (size_t count = 1; count <= MOST; count++)
        for (size_t old = 1; old <= MOST_RANKS; old++)
            for (size_t world = 1; world <= MOST_RANKS; world++) check(grade, count, old, world);
}

const Grader grader_20_03 = {"20-sharding/03-take-part",
                             {{"as many ranks", 2, NULL, as_many_ranks},
                              {"fewer ranks", 3, "as many ranks", fewer_ranks},
                              {"more ranks", 2, "as many ranks", more_ranks},
                              {"uneven parts", 3, "fewer ranks", uneven}}};
