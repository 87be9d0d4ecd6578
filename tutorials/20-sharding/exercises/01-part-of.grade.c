/* 01-part-of.grade.c: every count up to 300 and every world up to 9. */
#include "tutorials/20-sharding/exercises/01-part-of.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_20_01;

enum { MOST = 300, MOST_RANKS = 9 };

typedef struct Question {
    size_t count, world, rank;
} Question;

static void ask(Grade *grade, Question q, size_t *begin, size_t *end) {
    *begin = *end = 99;
    GRADE_RUN(grade, part_of, q.count, q.world, q.rank, begin, end);
    GRADE_OUT(grade, *begin);
    GRADE_OUT(grade, *end);
}

static void one_rank(Grade *grade) {
    size_t begin = 99, end = 99;
    ask(grade, (Question){100, 1, 0}, &begin, &end);
    GRADE_EXPECT(grade, end != 96,
                 "The last floats are in no part: the incomplete line goes to the last rank.");
    GRADE_EXPECT(grade, begin == 0 && end == 100,
                 "One rank is in charge of all 100 floats, [0, 100), not [%zu, %zu).", begin, end);
}

static void two_ranks(Grade *grade) {
    size_t begin[2], end[2];
    for (size_t r = 0; r < 2; r++) ask(grade, (Question){100, 2, r}, &begin[r], &end[r]);
    GRADE_EXPECT(grade, end[0] != 50,
                 "The parts meet inside a cache line, which both ranks write: cut at multiples of "
                 "16 floats.");
    GRADE_EXPECT(grade, begin[0] == 0 && end[0] == 48 && begin[1] == 48 && end[1] == 100,
                 "100 floats on 2 ranks are [0, 48) and [48, 100), not [%zu, %zu) and [%zu, %zu).",
                 begin[0], end[0], begin[1], end[1]);
}

static void every_element_once(Grade *grade) {
    for (size_t count = 0; count <= MOST; count++)
        for (size_t world = 1; world <= MOST_RANKS; world++) {
            int seen[MOST] = {0};
            for (size_t rank = 0; rank < world; rank++) {
                size_t begin, end;
                ask(grade, (Question){count, world, rank}, &begin, &end);
                GRADE_EXPECT(grade, begin <= count && end <= count && begin <= end,
                             "A part reaches behind the last element: a share rounded up is too "
                             "much for the last ranks. (%zu floats, rank %zu of %zu: [%zu, %zu))",
                             count, rank, world, begin, end);
                for (size_t i = begin; i < end; i++) seen[i]++;
            }
            for (size_t i = 0; i < count; i++) {
                GRADE_EXPECT(grade, seen[i] > 0,
                             "No rank steps element %zu of %zu: the remainder goes to the last "
                             "rank. (%zu ranks)",
                             i, count, world);
                GRADE_EXPECT(grade, seen[i] == 1, "Element %zu of %zu is stepped %d times.", i,
                             count, seen[i]);
            }
        }
}

static void equal_shares(Grade *grade) {
    for (size_t count = 0; count <= MOST; count++)
        for (size_t world = 1; world <= MOST_RANKS; world++) {
            size_t share = count / LINE / world * LINE;
            for (size_t rank = 0; rank < world; rank++) {
                size_t begin, end, last = rank + 1 == world;
                ask(grade, (Question){count, world, rank}, &begin, &end);
                GRADE_EXPECT(grade, last || begin % LINE == 0,
                             "A part begins inside a cache line. (%zu floats, rank %zu of %zu)",
                             count, rank, world);
                GRADE_EXPECT(grade, begin == rank * share && (last || end == begin + share),
                             "All ranks but the last one have as many lines, and the last one has "
                             "the rest. (%zu floats, rank %zu of %zu: [%zu, %zu))",
                             count, rank, world, begin, end);
            }
        }
    size_t begin = 99, end = 99;
    ask(grade, (Question){6000000000, 2, 0}, &begin, &end);
    GRADE_EXPECT(
        grade, begin == 0 && end == 3000000000,
        "6,000,000,000 floats on 2 ranks: rank 0 has the first half, and not [%zu, %zu). An "
        "int ends at 2,147,483,647.",
        begin, end);
    const size_t huge = (size_t)1 << 41;
    ask(grade, (Question){huge, 2, 1}, &begin, &end);
    GRADE_EXPECT(grade, begin == huge / 2 && end == huge,
                 "2^41 floats on 2 ranks: rank 1 has the second half, and not [%zu, %zu). Half of "
                 "them are 2^36 lines, and an unsigned ends at 2^32.",
                 begin, end);
}

const Grader grader_20_01 = {"20-sharding/01-part-of",
                             {{"one rank", 2, NULL, one_rank},
                              {"two ranks", 2, "one rank", two_ranks},
                              {"every element once", 3, "two ranks", every_element_once},
                              {"equal shares", 3, "every element once", equal_shares}}};
