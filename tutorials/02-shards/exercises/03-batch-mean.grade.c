/* 03-batch-mean.grade.c: means that can be checked by hand. */
#include "tutorials/02-shards/exercises/03-batch-mean.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_02_03;

static void equal_shards(Grade *grade) {
    double means[2] = {1.0, 3.0};
    size_t rows[2] = {30, 30};
    double mean = GRADE_CALL(grade, batch_mean, means, rows, 2);
    GRADE_EXPECT(grade, mean != 120.0,
                 "The shards' sums were added up, but not divided by the number of all rows.");
    GRADE_EXPECT(grade, mean != 1.0, "The last shard was left out: half of the batch is missing.");
    GRADE_EXPECT(grade, mean != 0.0,
                 "30 / 60 is 0 in whole numbers: a division whose result is between them needs a "
                 "double.");
    GRADE_EXPECT(grade, mean == 2.0,
                 "30 rows of mean 1 and 30 rows of mean 3 have the mean 2, not %g.", mean);
}

static void unequal_shards(Grade *grade) {
    double means[3] = {1.0, 1.0, 7.0};
    size_t rows[3] = {4, 4, 1};
    double mean = GRADE_CALL(grade, batch_mean, means, rows, 3);
    GRADE_EXPECT(grade, mean != 3.0,
                 "This is the mean of the means: the rows of the short shard count for too much. "
                 "(8 rows of mean 1 and one of 7 have the mean 15/9, not 3)");
    GRADE_EXPECT(grade, fabs(mean - 15.0 / 9.0) < 1e-12 || fabs(mean - 15.0 / 9.0) > 1e-6,
                 "The mean has the seven digits of a float: add and divide doubles.");
    GRADE_EXPECT(grade, fabs(mean - 15.0 / 9.0) < 1e-12,
                 "8 rows of mean 1 and one row of 7 have the mean 15/9 = 1.6667, not %g.", mean);
    mean = GRADE_CALL(grade, batch_mean, (double[]){0.1, 0.7}, (size_t[]){16777217, 2}, 2);
    GRADE_EXPECT(grade, fabs(mean - (0.1 * 16777217 + 0.7 * 2) / 16777219) < 1e-12,
                 "16,777,217 rows of mean 0.1 and 2 of mean 0.7 have another mean than %.12f: a "
                 "float has seven digits.",
                 mean);
    double many_means[2] = {1.0, 5.0};
    size_t many_rows[2] = {3000000000, 1000000000};
    mean = GRADE_CALL(grade, batch_mean, many_means, many_rows, 2);
    GRADE_EXPECT(grade, mean == 2.0,
                 "3 and 1 thousand million rows of the means 1 and 5 have the mean 2, not %g: an "
                 "int ends at 2^31.",
                 mean);
}

static void empty_shards(Grade *grade) {
    double means[4] = {2.0, NAN, 6.0, NAN};
    size_t rows[4] = {3, 0, 1, 0};
    double mean = GRADE_CALL(grade, batch_mean, means, rows, 4);
    GRADE_EXPECT(grade, !isnan(mean), "A shard without rows made the result NaN: leave it out.");
    GRADE_EXPECT(grade, mean == 3.0, "3 rows of mean 2 and one of 6 have the mean 3, not %g.",
                 mean);
    mean = GRADE_CALL(grade, batch_mean, (double[]){1.0, NAN}, (size_t[]){3, 2}, 2);
    GRADE_EXPECT(grade, isnan(mean),
                 "A shard with rows had the mean NaN, and the result is %g: leave a shard out by "
                 "its rows, not by a NaN, which reveals a failed training.",
                 mean);
}

static void no_rows(Grade *grade) {
    double means[2] = {NAN, NAN};
    size_t rows[2] = {0, 0};
    double mean = GRADE_CALL(grade, batch_mean, means, rows, 2);
    GRADE_EXPECT(grade, mean == 0.0,
                 "Without any rows the mean is 0 by agreement, and not 0 / 0. (yours is %g)", mean);
}

const Grader grader_02_03 = {"02-shards/03-batch-mean",
                             {{"two equal shards", 2, NULL, equal_shards},
                              {"unequal shards", 4, "two equal shards", unequal_shards},
                              {"shards without rows", 3, "unequal shards", empty_shards},
                              {"no rows at all", 1, "shards without rows", no_rows}}};
