/* 02-exposed.grade.c: small plans, each of which another mistake gets wrong. */
#include "tutorials/22-what-it-buys/exercises/02-exposed.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_22_02;

enum { MOST_BUCKETS = 4 };

typedef struct Plan {
    int buckets;
    double ready[MOST_BUCKETS], reduce[MOST_BUCKETS], backward, exposed;
    const char *sentence;
} Plan;

static void judge(Grade *grade, const Plan *plans, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Plan *p = &plans[i];
        double got = STUDENT(grade, exposed_s)(p->ready, p->reduce, p->buckets, p->backward);
        GRADE_EXPECT(grade, fabs(got - p->exposed) < 1e-12, "%s (It is %g s, and not %g.)",
                     p->sentence, p->exposed, got);
    }
}

static void one_bucket(Grade *grade) {
    static const Plan PLANS[] = {
        {1, {8}, {5}, 8, 5, "One bucket that is ready at the end of backward sticks out whole."},
        {1, {2}, {16}, 8, 10, "It began 2 s after the beginning of backward, and needs 16."}};
    judge(grade, PLANS, sizeof PLANS / sizeof *PLANS);
}

static void hidden(Grade *grade) {
    static const char SENTENCE[] = "All was over before backward: exposed is 0, and not negative.";
    static const Plan PLANS[] = {{1, {2}, {4}, 8, 0, SENTENCE}, {0, {0}, {0}, 8, 0, SENTENCE}};
    judge(grade, PLANS, sizeof PLANS / sizeof *PLANS);
}

static void queue(Grade *grade) {
    static const Plan PLANS[] = {
        {2,
         {2, 8},
         {4, 3},
         8,
         3,
         "The first bucket was over before the second was ready: the link was idle in between."},
        {3,
         {2, 4, 8},
         {8, 8, 1},
         8,
         11,
         "A bucket waits for the one before it: the link carries one at a time."},
        {4,
         {2, 4, 6, 8},
         {10, 1, 1, 1},
         8,
         7,
         "A bucket waits for the one before it: the link carries one at a time."},
        {3,
         {1, 2, 8},
         {1, 2, 4},
         8,
         4,
         "The first two were over before the third was ready: the link was idle in between."}};
    judge(grade, PLANS, sizeof PLANS / sizeof *PLANS);
}

const Grader grader_22_02 = {"22-what-it-buys/02-exposed",
                             {{"one bucket", 3, NULL, one_bucket},
                              {"nothing sticks out", 2, "one bucket", hidden},
                              {"a queue of buckets", 5, "one bucket", queue}}};
