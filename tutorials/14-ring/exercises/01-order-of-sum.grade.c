/* 01-order-of-sum.grade.c: orders that were written down by hand. */
#include "tutorials/14-ring/exercises/01-order-of-sum.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_14_01;

enum { MOST_RANKS = 5 };

static char yours[64]; // the student's last answer

// Whether the student's order at this position is the chunk's order.
static bool is_order(Grade *grade, size_t place, size_t count, int world, const int *wanted) {
    int got[MOST_RANKS + 1] = {-1, -1, -1, -1, -1, -1};
    bool same = true;
    GRADE_RUN(grade, order_of_sum, place, count, world, got);
    GRADE_OUT(grade, got);
    size_t length = 0;
    for (int i = 0; i < world; i++) {
        same = same && got[i] == wanted[i];
        length += (size_t)snprintf(yours + length, sizeof yours - length, " %d", got[i]);
    }
    GRADE_EXPECT(grade, got[world] == -1,
                 "Something was written behind the order: there are as many places as ranks.");
    return same;
}

static void two_ranks(Grade *grade) {
    const int zero[] = {0, 1}, one[] = {1, 0};
    GRADE_EXPECT(grade, !is_order(grade, 0, 4, 2, one),
                 "Chunk c begins at rank c, and not at the next one.");
    GRADE_EXPECT(grade, is_order(grade, 0, 4, 2, zero),
                 "At place 0 of 4, two ranks: 0 1 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, !is_order(grade, 1, 4, 2, one),
                 "Neighbours stand in one chunk; a chunk is a piece of the buffer, and not every "
                 "W-th number.");
    GRADE_EXPECT(grade, is_order(grade, 1, 4, 2, zero),
                 "At place 1 of 4, two ranks: 0 1 is right, yours is%s.", yours);
    GRADE_EXPECT(
        grade, !is_order(grade, 2, 4, 2, zero) || !is_order(grade, 3, 4, 2, zero),
        "This is the order of the ranks everywhere; a ring adds chunk 1 in another order.");
    GRADE_EXPECT(grade, !is_order(grade, 2, 4, 2, zero),
                 "4 numbers on 2 ranks are chunks of 2: to round up is not to add one always.");
    GRADE_EXPECT(grade, is_order(grade, 3, 4, 2, one),
                 "At place 3 of 4, two ranks: 1 0 is right, yours is%s.", yours);
}

static void around(Grade *grade) {
    const int three[3][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}};
    const int back[] = {1, 0, 2}, five[] = {3, 4, 0, 1, 2};
    GRADE_EXPECT(grade, !is_order(grade, 0, 6, 3, (int[]){0, 2, 1}),
                 "The chunk goes around the wrong way: after rank c comes rank c + 1.");
    GRADE_EXPECT(grade, !is_order(grade, 2, 6, 3, back),
                 "Chunk c begins at rank c, and the others follow around the ring, not by their "
                 "numbers.");
    for (size_t place = 0; place < 6; place++)
        GRADE_EXPECT(grade, is_order(grade, place, 6, 3, three[place / 2]),
                     "At place %zu of 6, three ranks: %d %d %d is right, yours is%s.", place,
                     three[place / 2][0], three[place / 2][1], three[place / 2][2], yours);
    GRADE_EXPECT(grade, is_order(grade, 7, 10, 5, five),
                 "At place 7 of 10, five ranks: 3 4 0 1 2 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, is_order(grade, 0, 1, 1, (int[]){0}), "One rank is alone: 0.");
}

static void uneven(Grade *grade) {
    // 7 numbers on 3 ranks are 3, 3 and 1; 11 on 5 are 3, 3, 3, 2 and none.
    GRADE_EXPECT(grade, !is_order(grade, 2, 7, 3, (int[]){1, 2, 0}),
                 "The length of a chunk is rounded up: else there is one chunk too many.");
    GRADE_EXPECT(grade, is_order(grade, 2, 7, 3, (int[]){0, 1, 2}),
                 "At place 2 of 7: 0 1 2 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, is_order(grade, 6, 7, 3, (int[]){2, 0, 1}),
                 "At place 6 of 7: 2 0 1 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, is_order(grade, 10, 11, 5, (int[]){3, 4, 0, 1, 2}),
                 "At place 10 of 11, five ranks: 3 4 0 1 2 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, is_order(grade, 2, 3, 5, (int[]){2, 3, 4, 0, 1}),
                 "At place 2 of 3, five ranks: 2 3 4 0 1 is right, yours is%s.", yours);
    GRADE_EXPECT(grade, is_order(grade, 5000000001, 6000000000, 2, (int[]){1, 0}),
                 "At place 5,000,000,001 of 6,000,000,000, two ranks: 1 0. An int ends at "
                 "2,147,483,647.");
    GRADE_EXPECT(grade, is_order(grade, 16777216, 33554434, 2, (int[]){0, 1}),
                 "At place 16,777,216 of 33,554,434, two ranks: 0 1. A float counts to 16,777,216 "
                 "only.");
}

const Grader grader_14_01 = {"14-ring/01-order-of-sum",
                             {{"two ranks", 3, NULL, two_ranks},
                              {"around the ring", 4, "two ranks", around},
                              {"chunks of unequal length", 3, "around the ring", uneven}}};
