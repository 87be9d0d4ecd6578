/* 01-cut-buckets.grade.c: models whose buckets were cut by hand. */
#include "tutorials/12-buckets/exercises/01-cut-buckets.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_12_01;

enum { MOST = 8 };

typedef struct Case {
    size_t count, cap, bytes[MOST];
    size_t buckets, bucket_of[MOST];
} Case;

static size_t cut(Grade *grade, const Case *c, size_t *bucket_of) {
    for (size_t k = 0; k < MOST; k++) bucket_of[k] = 99;
    size_t count = GRADE_CALL(grade, cut_buckets, c->bytes, c->count, c->cap, bucket_of);
    grade_out(grade, bucket_of, MOST * sizeof *bucket_of);
    return count;
}

// Checks each parameter's bucket before the number of buckets, so that the student reads the more
// precise sentence.
static void check(Grade *grade, const Case *c, const char *place, const char *number) {
    size_t *bucket_of = grade_fenced(grade, MOST * sizeof *bucket_of);
    size_t got = cut(grade, c, bucket_of);
    for (size_t k = c->count; k-- > 0;)
        GRADE_EXPECT(
            grade, bucket_of[k] == c->bucket_of[k],
            "%s (cap %zu; parameter %zu of %zu bytes is in bucket %zu, and belongs in %zu)", place,
            c->cap, k, c->bytes[k], bucket_of[k], c->bucket_of[k]);
    GRADE_EXPECT(grade, got == c->buckets, "%s (cap %zu: %zu buckets, and you return %zu)", number,
                 c->cap, c->buckets, got);
}

static void alone(Grade *grade) {
    const Case c = {3, 0, {12, 4, 8}, 3, {2, 1, 0}};
    size_t bucket_of[MOST], first = cut(grade, &c, bucket_of);
    GRADE_EXPECT(grade, cut(grade, &c, bucket_of) == first,
                 "The second call gave another answer than the first: something was kept from one "
                 "call to the next.");
    GRADE_EXPECT(grade, bucket_of[0] != 0 || bucket_of[2] != 2,
                 "The first parameter is in bucket 0; backward has the last one first.");
    check(grade, &c, "With a cap of 0 each gradient is alone.",
          "A bucket without gradients was counted: the last one was full, and another was opened.");
}

static void together(Grade *grade) {
    const Case last_is_open = {4, 50, {10, 300, 20, 20}, 2, {1, 0, 0, 0}};
    const Case closed = {3, 50, {60, 300, 40}, 2, {1, 0, 0}};
    check(
        grade, &last_is_open,
        "A bucket was closed because the next gradient would not fit; it is closed when it is "
        "full.",
        "The last bucket is not counted, because it was never full: its gradients would be lost.");
    check(grade, &closed, "A gradient is in the wrong bucket.",
          "A bucket without gradients was counted: the last one was full, and another was opened.");
}

static void several(Grade *grade) {
    const Case none = {0, 50, {0}, 0, {0}};
    const Case large = {3, 5000000000, {10, 3000000000, 3000000000}, 2, {1, 0, 0}};
    const Case again = {6, 50, {30, 30, 30, 30, 30, 30}, 3, {2, 2, 1, 1, 0, 0}};
    const Case eight = {8, 4, {4, 8, 4, 8, 4, 8, 4, 8}, 8, {7, 6, 5, 4, 3, 2, 1, 0}};
    const Case one = {3, 1000, {100, 20, 30}, 1, {0, 0, 0}};
    size_t bucket_of[MOST];
    cut(grade, &one, bucket_of);
    GRADE_EXPECT(grade, bucket_of[one.count] == 99,
                 "A number was written behind the last parameter's: bucket_of has count.");
    check(grade, &none, "", "Without parameters there is no bucket.");
    check(grade, &large, "Bytes were counted in a type that 3000 million do not fit into.",
          "The number of buckets is wrong.");
    check(grade, &again, "A new bucket is empty: the previous bucket's bytes were counted again.",
          "The number of buckets is wrong.");
    check(grade, &eight, "As many buckets are opened as it takes.",
          "The number of buckets is wrong.");
    check(
        grade, &one, "All of it fits into one bucket.",
        "The last bucket is not counted, because it was never full: its gradients would be lost.");
}

static void exactly(Grade *grade) {
    const Case c = {5, 50, {20, 20, 30, 25, 25}, 3, {2, 1, 1, 0, 0}};
    check(grade, &c, "A bucket that holds exactly `cap` bytes is full.",
          "The number of buckets is wrong.");
}

const Grader grader_12_01 = {"12-buckets/01-cut-buckets",
                             {{"each gradient alone", 3, NULL, alone},
                              {"gradients together", 3, "each gradient alone", together},
                              {"one bucket, three and eight", 2, "gradients together", several},
                              {"exactly full", 2, "gradients together", exactly}}};
