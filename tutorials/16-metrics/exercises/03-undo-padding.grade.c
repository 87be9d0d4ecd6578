/* 03-undo-padding.grade.c: by hand first, then against the library's sampler. */
#include "tutorials/16-metrics/exercises/03-undo-padding.h"

#include <string.h>

#include "ddp/distributed_sampler.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_16_03;

enum { MOST = 64, BEHIND = -7 };

// No two rows of one scene have the same answer, and the answers do not grow with the rows.
static int answer_to(size_t row) {
    return 100 + (int)(row * 29 % MOST);
}

static size_t row_of(int answer) {
    size_t row = 0;
    while (row < MOST && answer_to(row) != answer) row++;
    return row;
}

static void check(Grade *grade, size_t rows, size_t world) {
    size_t per_rank = distributed_count(rows, (int)world, false);
    int gathered[MOST + 16], *answers = grade_fenced(grade, sizeof gathered);
    for (size_t r = 0; r < world; r++) {
        size_t order[MOST + 16];
        for (size_t i = 0; i < rows; i++) order[i] = i;
        distributed_indices(order, rows, (int)world, (int)r, false);
        for (size_t i = 0; i < per_rank; i++) gathered[r * per_rank + i] = answer_to(order[i]);
    }
    for (size_t i = 0; i < MOST + 16; i++) answers[i] = BEHIND;
    GRADE_RUN(grade, undo_padding, gathered, world, per_rank, rows, answers);
    grade_out(grade, answers, sizeof gathered);
    GRADE_EXPECT(grade,
                 world == 1 || per_rank == 1 || memcmp(answers, gathered, rows * sizeof(int)) != 0,
                 "These are rank 0's answers, then rank 1's: but rank 0 does not have the first "
                 "rows, it has every %zu-th.",
                 world);
    for (size_t i = 0; i < rows; i++) {
        size_t row = row_of(answers[i]);
        GRADE_EXPECT(grade, row < rows,
                     "%zu rows on %zu ranks: position %zu has %d, which is no row's answer.", rows,
                     world, i, answers[i]);
        GRADE_EXPECT(grade, row == i,
                     "%zu rows on %zu ranks: position %zu has the answer to row %zu.", rows, world,
                     i, row);
    }
    for (size_t i = rows; i < MOST + 16; i++)
        GRADE_EXPECT(grade, answers[i] == BEHIND,
                     "%zu rows on %zu ranks: more than %zu answers: the repeated ones were kept.",
                     rows, world, rows);
}

// Rows that have the answers 0, 1, 0, 1, ..., and per_rank answers of each rank.
static void check_answers(Grade *grade, size_t rows, size_t world, size_t per_rank,
                          const char *sentence) {
    int gathered[MOST], answers[MOST];
    for (size_t r = 0; r < world; r++)
        for (size_t i = 0; i < per_rank; i++)
            gathered[r * per_rank + i] = (int)((i * world + r) % rows % 2);
    GRADE_RUN(grade, undo_padding, gathered, world, per_rank, rows, answers);
    GRADE_OUT(grade, answers);
    for (size_t i = 0; i < rows; i++)
        GRADE_EXPECT(grade, answers[i] == (int)(i % 2), "%s", sentence);
}

static void one_rank(Grade *grade) {
    check(grade, 5, 1);
}

static void without_padding(Grade *grade) {
    check(grade, 6, 2);
    check(grade, 12, 3);
}

static void with_padding(Grade *grade) {
    check(grade, 5, 2);
    check(grade, 7, 3);
    check(grade, 11, 5);
    check_answers(
        grade, 7, 3, 3,
        "Two rows may have the same answer: leave out repeated rows, not repeated answers.");
    check_answers(
        grade, 7, 3, 5,
        "The ranks had 5 answers each, more than 7 rows need: where a rank's answers begin "
        "is said by per_rank, and not by rows.");
}

static void every_case(Grade *grade) {
    for (size_t world = 1; world <= 8; world++)
        for (size_t rows = 1; rows <= 40; rows++) check(grade, rows, world);
}

const Grader grader_16_03 = {"16-metrics/03-undo-padding",
                             {{"one rank", 1, NULL, one_rank},
                              {"without padding", 3, "one rank", without_padding},
                              {"with padding", 4, "without padding", with_padding},
                              {"every small case", 2, "with padding", every_case}}};
