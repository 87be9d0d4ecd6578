/* 02-sum-shards.grade.c: first numbers with exact sums, then numbers whose sum depends on the order
 * of the additions.
 */
#include "tutorials/02-shards/exercises/02-sum-shards.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_02_02;

enum { COUNT = 100003, SHARDS = 5 }; // a prime number: there is always a tail

typedef struct Numbers {
    float values[SHARDS][COUNT], sum[COUNT];
    const float *shards[SHARDS];
} Numbers;

static void fill(Numbers *n, float (*value)(size_t shard, size_t i)) {
    for (size_t shard = 0; shard < SHARDS; shard++) {
        n->shards[shard] = n->values[shard];
        for (size_t i = 0; i < COUNT; i++) n->values[shard][i] = value(shard, i);
    }
    for (size_t i = 0; i < COUNT; i++) n->sum[i] = 1000.0f; // old contents
}

// Small whole numbers, every one different from its neighbours: their sums are exact.
static float whole(size_t shard, size_t i) {
    return (float)(1 + shard * 7 + i % 13);
}

// Values of very different magnitudes, so that each addition rounds.
static float rough(size_t shard, size_t i) {
    return sinf((float)(1 + i * SHARDS + shard)) * ldexpf(1.0f, (int)((shard * 5 + i) % 11));
}

static void add(Grade *grade, Numbers *n, size_t shards, size_t count) {
    GRADE_RUN(grade, sum_shards, n->sum, n->shards, shards, count);
    GRADE_OUT(grade, n->sum);
    GRADE_OUT(grade, n->values);
}

static void one_shard(Grade *grade) {
    static Numbers n;
    fill(&n, whole);
    n.sum[2] = NAN;
    add(grade, &n, 1, 4);
    GRADE_EXPECT(grade, n.sum[0] != 1000.0f, "Nothing was written into sum.");
    GRADE_EXPECT(grade, n.sum[0] < 1000.0f,
                 "The old contents of sum were added, too: begin with the first shard's number.");
    GRADE_EXPECT(grade, n.sum[1] != 1000.0f + whole(0, 1),
                 "The old contents were cleared in part only: memset counts bytes, and a float has "
                 "four.");
    GRADE_EXPECT(grade, n.sum[1] != 1000.0f,
                 "Only the beginning of sum was written: memcpy counts bytes, and a float has "
                 "four.");
    GRADE_EXPECT(grade, n.sum[3] != 1000.0f || isnan(n.sum[2]),
                 "The last number was not summed: the loop ends at count - 1, and not before it.");
    GRADE_EXPECT(grade, !isnan(n.sum[2]),
                 "sum contained a NaN before the call, and still does: 0 times NaN is NaN, too.");
    for (size_t i = 0; i < 4; i++)
        GRADE_EXPECT(grade, n.sum[i] == whole(0, i),
                     "The sum of one shard is that shard: sum[%zu] should be %g, not %g.", i,
                     (double)whole(0, i), (double)n.sum[i]);
}

static void two_shards(Grade *grade) {
    static Numbers n;
    fill(&n, whole);
    add(grade, &n, 2, 9);
    GRADE_EXPECT(grade, n.sum[0] != whole(0, 0), "The last shard is missing from the sum.");
    GRADE_EXPECT(grade, n.sum[0] != (whole(0, 0) + whole(1, 0)) / 2,
                 "This is the mean of the shards; their sum is wanted.");
    GRADE_EXPECT(grade, n.sum[8] != 1000.0f,
                 "The last numbers were not summed: count need not be a multiple of anything.");
    for (size_t i = 0; i < 9; i++)
        GRADE_EXPECT(grade, n.sum[i] == whole(0, i) + whole(1, i),
                     "%g and %g add up to %g, but sum[%zu] is %g.", (double)whole(0, i),
                     (double)whole(1, i), (double)(whole(0, i) + whole(1, i)), i, (double)n.sum[i]);
    for (size_t i = 9; i < 32; i++)
        GRADE_EXPECT(grade, n.sum[i] == 1000.0f,
                     "Something was written behind the end of sum: count was 9, and sum[%zu] is "
                     "not yours.",
                     i);
    fill(&n, whole);
    add(grade, &n, 2, 0);
    GRADE_EXPECT(grade, n.sum[0] == 1000.0f, "The count was 0, and a sum was written.");
}

static void check_numbers(Grade *grade, size_t shards) {
    static Numbers n;
    fill(&n, whole);
    add(grade, &n, shards, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        float wanted = 0;
        for (size_t shard = 0; shard < shards; shard++) wanted += whole(shard, i);
        for (size_t shard = 0; shard < shards; shard++)
            GRADE_EXPECT(grade, n.values[shard][i] == whole(shard, i),
                         "The numbers of shard %zu were changed; only sum is yours to write.",
                         shard);
        GRADE_EXPECT(grade, n.sum[i] != 1000.0f,
                     "The last numbers were not summed: count need not be a multiple of anything. "
                     "(sum[%zu] of %d)",
                     i, COUNT);
        GRADE_EXPECT(grade, n.sum[i] == wanted, "sum[%zu] of %zu shards is %g and should be %g.", i,
                     shards, (double)n.sum[i], (double)wanted);
    }
}

static void all_numbers(Grade *grade) {
    check_numbers(grade, SHARDS);
    check_numbers(grade, 3);
}

static float exact(const Numbers *n, size_t i) {
    double sum = 0;
    for (size_t shard = 0; shard < SHARDS; shard++) sum += (double)n->values[shard][i];
    return (float)sum;
}

static void same_bits(Grade *grade) {
    static Numbers n;
    fill(&n, rough);
    add(grade, &n, SHARDS, COUNT);
    size_t different = 0, rounded_once = 0;
    for (size_t i = 0; i < COUNT; i++) {
        float wanted = n.values[0][i];
        for (size_t shard = 1; shard < SHARDS; shard++) wanted += n.values[shard][i];
        different += n.sum[i] != wanted;
        rounded_once += n.sum[i] == exact(&n, i);
        GRADE_EXPECT(grade, fabsf(n.sum[i] - wanted) <= 1e-3f,
                     "sum[%zu] is %g and should be %g: that is more than rounding.", i,
                     (double)n.sum[i], (double)wanted);
    }
    GRADE_EXPECT(grade, different == 0 || rounded_once < COUNT,
                 "The additions were not rounded to float one by one, as those of the devices "
                 "are.");
    GRADE_EXPECT(grade, different == 0,
                 "The sum is right except for its last bits, which depend on the order: first "
                 "shard first. (%zu of %d numbers differ)",
                 different, COUNT);
}

const Grader grader_02_02 = {
    "02-shards/02-sum-shards",
    {{"one shard", 2, NULL, one_shard},
     {"two shards", 3, "one shard", two_shards},
     {"all shards, all numbers", 2, "two shards", all_numbers},
     {"the same bits as in order", 3, "all shards, all numbers", same_bits}}};
