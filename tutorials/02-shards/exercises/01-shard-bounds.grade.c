/* 01-shard-bounds.grade.c: every number of rows up to 40 and of shards up to 9, compared with the
 * library's chunk_bounds, PyTorch's rule.
 */
#include "tutorials/02-shards/exercises/01-shard-bounds.h"

#include "common/data/sampler.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_02_01;

enum { MOST_ROWS = 40, MOST_SHARDS = 9 };

typedef struct Question {
    size_t rows, shards, shard;
} Question;

static void ask(Grade *grade, Question q, size_t *begin, size_t *end) {
    *begin = *end = 99;
    GRADE_RUN(grade, shard_bounds, q.rows, q.shards, q.shard, begin, end);
    GRADE_OUT(grade, *begin);
    GRADE_OUT(grade, *end);
}

static void one_shard(Grade *grade) {
    size_t begin = 99, end = 99;
    ask(grade, (Question){10, 1, 0}, &begin, &end);
    GRADE_EXPECT(grade, begin != 0 || end != 9,
                 "end is the first row behind the shard, as in [begin, end), and not its last "
                 "row.");
    GRADE_EXPECT(grade, begin == 0 && end == 10,
                 "One shard of 10 rows is all of them, [0, 10), not [%zu, %zu).", begin, end);
}

static void equal_shards(Grade *grade) {
    for (size_t shard = 0; shard < 4; shard++) {
        size_t begin, end;
        ask(grade, (Question){12, 4, shard}, &begin, &end);
        GRADE_EXPECT(grade, begin == 3 * shard && end == 3 * shard + 3,
                     "Shard %zu of 4 of 12 rows is [%zu, %zu), not [%zu, %zu).", shard, 3 * shard,
                     3 * shard + 3, begin, end);
    }
}

static void every_row_once(Grade *grade) {
    for (size_t rows = 0; rows <= MOST_ROWS; rows++)
        for (size_t shards = 1; shards <= MOST_SHARDS; shards++) {
            int seen[MOST_ROWS] = {0};
            for (size_t shard = 0; shard < shards; shard++) {
                size_t begin, end;
                ask(grade, (Question){rows, shards, shard}, &begin, &end);
                GRADE_EXPECT(grade, begin <= rows && end <= rows,
                             "A shard reaches behind the last row: both bounds are at most rows. "
                             "(%zu rows, shard %zu of %zu: [%zu, %zu))",
                             rows, shard, shards, begin, end);
                for (size_t row = begin; row < end; row++) seen[row]++;
            }
            for (size_t row = 0; row < rows; row++) {
                GRADE_EXPECT(grade, seen[row] > 0,
                             "The last rows are in no shard: rows / shards rounds down, and the "
                             "rest is lost. (row %zu of %zu, %zu shards)",
                             row, rows, shards);
                GRADE_EXPECT(grade, seen[row] == 1, "Row %zu of %zu is in %d of %zu shards.", row,
                             rows, seen[row], shards);
            }
        }
}

// The same shards in order, and from the last to the first.
static void in_any_order(Grade *grade) {
    enum { SHARDS = 4 };
    size_t begins[SHARDS], ends[SHARDS];
    for (size_t shard = 0; shard < SHARDS; shard++)
        ask(grade, (Question){10, SHARDS, shard}, &begins[shard], &ends[shard]);
    for (size_t shard = SHARDS; shard-- > 0;) {
        size_t begin, end;
        ask(grade, (Question){10, SHARDS, shard}, &begin, &end);
        GRADE_EXPECT(grade, begin == begins[shard] && end == ends[shard],
                     "Shard %zu differs when the shards are computed from the last to the first: a "
                     "static or global variable keeps state between calls.",
                     shard);
    }
}

static void many_rows(Grade *grade) {
    const size_t cases[][2] = {{16777217, 1}, {33554435, 2}, {5000000000, 3}, {5000000000, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t shard = 0; shard < cases[i][1]; shard++) {
            size_t begin, end, b, e;
            ask(grade, (Question){cases[i][0], cases[i][1], shard}, &begin, &end);
            chunk_bounds(cases[i][0], cases[i][1], shard, &b, &e);
            GRADE_EXPECT(grade, begin == b && end == e,
                         "Few rows are right, and many are not: an int ends at 2^31, and a float "
                         "has 24 bits. (%zu rows, shard %zu of %zu: [%zu, %zu) and not [%zu, %zu))",
                         cases[i][0], shard, cases[i][1], b, e, begin, end);
        }
}

static void pytorch_rule(Grade *grade) {
    for (size_t rows = 0; rows <= MOST_ROWS; rows++)
        for (size_t shards = 1; shards <= MOST_SHARDS; shards++)
            for (size_t shard = 0; shard < shards; shard++) {
                size_t begin, end, b, e;
                ask(grade, (Question){rows, shards, shard}, &begin, &end);
                chunk_bounds(rows, shards, shard, &b, &e);
                GRADE_EXPECT(grade, end - begin == e - b && (b == e || begin == b),
                             "The chunks are ceil(rows / shards) long, and only the last one is "
                             "shorter. (%zu rows, shard %zu of %zu: [%zu, %zu) and not [%zu, %zu))",
                             rows, shard, shards, b, e, begin, end);
            }
    in_any_order(grade);
    many_rows(grade);
}

const Grader grader_02_01 = {
    "02-shards/01-shard-bounds",
    {{"one shard", 2, NULL, one_shard},
     {"shards of equal length", 2, "one shard", equal_shards},
     {"every row in one shard", 3, "shards of equal length", every_row_once},
     {"PyTorch's cut", 3, "every row in one shard", pytorch_rule}}};
