/* 01-shard-bounds.grade.c: every number of rows up to 40 and of shards up to 9, against PyTorch's
 * rule as the library has it.
 */
#include "tutorials/02-shards/exercises/01-shard-bounds.h"

#include "common/data/sampler.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_02_01;

enum { MOST_ROWS = 40, MOST_SHARDS = 9 };

static void one_shard(Grade *grade) {
    size_t begin = 99, end = 99;
    STUDENT(grade, shard_bounds)(10, 1, 0, &begin, &end);
    GRADE_EXPECT(grade, begin != 0 || end != 9,
                 "end is the first row behind the shard, as in [begin, end), and not its last "
                 "row.");
    GRADE_EXPECT(grade, begin == 0 && end == 10,
                 "One shard of 10 rows is all of them, [0, 10), not [%zu, %zu).", begin, end);
}

static void equal_shards(Grade *grade) {
    for (size_t shard = 0; shard < 4; shard++) {
        size_t begin, end;
        STUDENT(grade, shard_bounds)(12, 4, shard, &begin, &end);
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
                STUDENT(grade, shard_bounds)(rows, shards, shard, &begin, &end);
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

static void pytorch_rule(Grade *grade) {
    for (size_t rows = 0; rows <= MOST_ROWS; rows++)
        for (size_t shards = 1; shards <= MOST_SHARDS; shards++)
            for (size_t shard = 0; shard < shards; shard++) {
                size_t begin, end, b, e;
                STUDENT(grade, shard_bounds)(rows, shards, shard, &begin, &end);
                chunk_bounds(rows, shards, shard, &b, &e);
                GRADE_EXPECT(grade, end - begin == e - b && (b == e || begin == b),
                             "The chunks are ceil(rows / shards) long, and only the last one is "
                             "shorter. (%zu rows, shard %zu of %zu: [%zu, %zu) and not [%zu, %zu))",
                             rows, shard, shards, b, e, begin, end);
            }
}

const Grader grader_02_01 = {
    "02-shards/01-shard-bounds",
    {{"one shard", 2, NULL, one_shard},
     {"shards of equal length", 2, "one shard", equal_shards},
     {"every row in one shard", 3, "shards of equal length", every_row_once},
     {"PyTorch's cut", 3, "every row in one shard", pytorch_rule}}};
