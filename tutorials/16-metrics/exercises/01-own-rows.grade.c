/* 01-own-rows.grade.c: known cuts first, then every small case. */
#include "tutorials/16-metrics/exercises/01-own-rows.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_16_01;

typedef struct Part {
    size_t begin, end;
} Part;

static Part ask(Grade *grade, size_t rows, size_t world, size_t rank) {
    Part part = {99999, 99999};
    GRADE_RUN(grade, own_rows, rows, world, rank, &part.begin, &part.end);
    GRADE_OUT(grade, part);
    return part;
}

static void even(Grade *grade) {
    Part first = ask(grade, 12, 3, 0), last = ask(grade, 12, 3, 2);
    GRADE_EXPECT(grade, first.begin != 0 || first.end != 12,
                 "Every rank looks at all rows: each of them counts as often as there are ranks.");
    GRADE_EXPECT(grade, first.begin == 0 && first.end == 4 && last.begin == 8 && last.end == 12,
                 "12 rows on 3 ranks: rank 0 has [0, 4) and rank 2 [8, 12); yours are [%zu, %zu) "
                 "and [%zu, %zu).",
                 first.begin, first.end, last.begin, last.end);
}

static void every_row_once(Grade *grade) {
    for (size_t world = 1; world <= 8; world++)
        for (size_t rows = 0; rows <= 40; rows++) {
            size_t next = 0;
            for (size_t rank = 0; rank < world; rank++) {
                Part part = ask(grade, rows, world, rank);
                GRADE_EXPECT(grade, part.begin <= part.end,
                             "%zu rows on %zu ranks: rank %zu's part ends before it begins.", rows,
                             world, rank);
                GRADE_EXPECT(grade, part.end <= rows,
                             "%zu rows on %zu ranks: rank %zu was given rows that do not exist, or "
                             "some twice: that is padding.",
                             rows, world, rank);
                GRADE_EXPECT(grade, part.begin == part.end || part.begin == next,
                             "%zu rows on %zu ranks: rank %zu begins at row %zu, but row %zu comes "
                             "next.",
                             rows, world, rank, part.begin, next);
                next += part.end - part.begin;
            }
            GRADE_EXPECT(grade, next == rows,
                         "%zu rows on %zu ranks: no rank evaluates the last rows.", rows, world);
        }
}

static void nobody_waits(Grade *grade) {
    for (size_t world = 1; world <= 8; world++)
        for (size_t rows = 0; rows <= 40; rows++) {
            size_t least = 99999, most = 0;
            for (size_t rank = 0; rank < world; rank++) {
                Part part = ask(grade, rows, world, rank);
                size_t count = part.end - part.begin;
                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            GRADE_EXPECT(grade, most - least <= 1,
                         "%zu rows on %zu ranks: one rank has %zu rows and another %zu; all wait "
                         "for the first.",
                         rows, world, most, least);
        }
    for (size_t rank = 0; rank < 4; rank++) {
        Part part = ask(grade, 10, 4, rank);
        GRADE_EXPECT(grade, part.end - part.begin == (rank < 2 ? 3 : 2),
                     "10 rows on 4 ranks are 3, 3, 2, 2: the first ranks have the additional "
                     "rows. (rank %zu has %zu)",
                     rank, part.end - part.begin);
    }
    Part half = ask(grade, 10000000001, 2, 1), third = ask(grade, 50331651, 3, 2);
    GRADE_EXPECT(
        grade, half.begin == 5000000001 && half.end == 10000000001,
        "10,000,000,001 rows on 2 ranks: rank 1 begins at row 5,000,000,001. An int ends at "
        "2,147,483,647.");
    GRADE_EXPECT(grade, third.begin == 33554434 && third.end == 50331651,
                 "50,331,651 rows on 3 ranks are 16,777,217 each. A float counts to 16,777,216 "
                 "only.");
}

const Grader grader_16_01 = {"16-metrics/01-own-rows",
                             {{"equal parts", 3, NULL, even},
                              {"every row once", 4, "equal parts", every_row_once},
                              {"no rank waits for long", 3, "every row once", nobody_waits}}};
