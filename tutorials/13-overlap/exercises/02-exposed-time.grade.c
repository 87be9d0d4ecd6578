/* 02-exposed-time.grade.c: timelines that were drawn by hand. The numbers are exact in doubles. */
#include "tutorials/13-overlap/exercises/02-exposed-time.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_13_02;

static double exposed(Grade *grade, const double *ready, const double *cost, size_t count,
                      double backward) {
    return GRADE_CALL(grade, exposed_time, ready, cost, count, backward);
}

static void one_bucket(Grade *grade) {
    double got = exposed(grade, (double[]){8}, (double[]){3}, 1, 9);
    GRADE_EXPECT(grade, got != 11,
                 "This is when the last bucket arrives; count from the end of backward.");
    GRADE_EXPECT(grade, got != 1,
                 "This is the time hidden behind backward; the exposed time is the rest.");
    GRADE_EXPECT(grade, got != 3,
                 "This is the time of all messages; a part of it is hidden behind backward.");
    GRADE_EXPECT(grade, got != 0, "A bucket travelled before it was full.");
    GRADE_EXPECT(grade, got == 2,
                 "One bucket that is full at 8 and takes 3, backward ends at 9: 2 are exposed, "
                 "not %g.",
                 got);
}

static void hidden(Grade *grade) {
    double got = exposed(grade, (double[]){2, 5, 9}, (double[]){4, 2, 3}, 3, 9);
    GRADE_EXPECT(grade, got != 9,
                 "This is the time of all messages; a part of it is hidden behind backward.");
    GRADE_EXPECT(grade, got != 0, "A bucket travelled before it was full.");
    GRADE_EXPECT(grade, got == 3, "The timeline in the task: 3 are exposed, not %g.", got);
    got = exposed(grade, (double[]){1, 4}, (double[]){2, 2}, 2, 10);
    GRADE_EXPECT(grade, got >= 0,
                 "No time is less than nothing: all had arrived before backward was over.");
    GRADE_EXPECT(grade, got == 0, "All arrived before backward ended, and %g are exposed.", got);
    got = exposed(grade, NULL, NULL, 0, 8);
    GRADE_EXPECT(grade, got == 0, "No bucket, and %g are exposed.", got);
}

static void one_after_the_other(Grade *grade) {
    // From 1 to 7, 7 to 11, 11 to 12; backward ends at 8.
    double got = exposed(grade, (double[]){1, 3, 8}, (double[]){6, 4, 1}, 3, 8);
    GRADE_EXPECT(grade, got != 1 || exposed(grade, (double[]){1, 2}, (double[]){9, 1}, 2, 4) != 6,
                 "Two buckets were reduced at the same time: each begins when the previous bucket "
                 "has completed.");
    GRADE_EXPECT(
        grade, got != 1,
        "Only the last bucket was counted; others may still be in flight when backward ends.");
    GRADE_EXPECT(grade, got == 4, "From 1 to 7, 7 to 11, 11 to 12: 4 are exposed, not %g.", got);
    got = exposed(grade, (double[]){1, 2}, (double[]){9, 1}, 2, 4);
    GRADE_EXPECT(grade, got == 7, "From 1 to 10, 10 to 11: 7 are exposed, not %g.", got);
    got = exposed(grade, (double[]){0.25, 0.5}, (double[]){0.5, 0.75}, 2, 1.125);
    GRADE_EXPECT(grade, got == 0.375,
                 "From 0.25 to 0.75, 0.75 to 1.5, backward ends at 1.125: 0.375 are exposed, not "
                 "%g. Is a time kept in whole numbers?",
                 got);
    got = exposed(grade, (double[]){16777217}, (double[]){2}, 1, 16777216);
    GRADE_EXPECT(grade, got == 3,
                 "From 16777217 to 16777219, backward ends at 16777216: 3 are exposed, not %g. A "
                 "float has seven digits.",
                 got);
}

const Grader grader_13_02 = {"13-overlap/02-exposed-time",
                             {{"one bucket", 3, NULL, one_bucket},
                              {"what is hidden", 4, "one bucket", hidden},
                              {"one after the other", 3, "what is hidden", one_after_the_other}}};
