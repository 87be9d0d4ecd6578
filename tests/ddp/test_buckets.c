/* test_buckets.c: the assignment of gradients to buckets: PyTorch's own unit vectors
 * (test/distributed/test_c10d_common.py, ComputeBucketAssignmentTest), the smallest and largest
 * caps, and ready order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "ddp/buckets.h"

enum { FLOAT, DOUBLE, TEXT = 256 };

// Formats a plan as "0,2@400|1,3@400": each bucket's tensors, then its limit in bytes.
static const char *plan_text(const BucketPlan *plan, char text[TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t b = 0; b < plan->bucket_count; b++) {
        for (size_t i = plan->start[b]; i < plan->start[b + 1]; i++)
            used += (size_t)snprintf(text + used, TEXT - used, "%s%zu",
                                     i > plan->start[b] ? "," : (b ? "|" : ""), plan->order[i]);
        used += (size_t)snprintf(text + used, TEXT - used, "@%zu", plan->limits[b]);
    }
    return text;
}

static void expect(const BucketTensor *tensors, size_t count, const size_t *limits,
                   size_t limit_count, const size_t *indices, const char *expected) {
    char text[TEXT];
    BucketPlan plan = buckets_assign(tensors, count, limits, limit_count, indices);
    assert_string_equal(plan_text(&plan, text), expected);
    assert_int_equal(plan.start[0], 0);
    assert_int_equal(plan.start[plan.bucket_count], count);
    buckets_free(&plan);
}

static const BucketTensor floats[] = {{400, FLOAT}, {800, FLOAT}, {400, FLOAT}, {200, FLOAT}};
static const BucketTensor tens[] = {{40, FLOAT}, {40, FLOAT}, {40, FLOAT}, {40, FLOAT}};
static const BucketTensor mixed[] = {{200, FLOAT},  {200, DOUBLE}, {200, FLOAT},
                                     {200, DOUBLE}, {200, FLOAT},  {200, DOUBLE}};

static void row_30_vectors_of_pytorch(void **state) {
    (void)state;
    expect(floats, 4, (size_t[]){400}, 1, NULL, "0@400|1@400|2@400|3@400");
    expect(mixed, 6, (size_t[]){400}, 1, NULL, "0,2@400|1,3@400|4@400|5@400");
    expect(tens, 4, (size_t[]){40, 80}, 2, NULL, "0@40|1,2@80|3@80");
    expect(mixed, 6, (size_t[]){200, 400}, 2, NULL, "0@200|1@200|2,4@400|3,5@400");
}

static void test_caps_at_both_ends(void **state) {
    (void)state;
    expect(tens, 4, (size_t[]){0}, 1, NULL, "0@0|1@0|2@0|3@0");
    expect(tens, 4, (size_t[]){1}, 1, NULL, "0@1|1@1|2@1|3@1");
    expect(tens, 4, (size_t[]){161}, 1, NULL, "0,1,2,3@161");
    expect(tens, 4, (size_t[]){160}, 1, NULL, "0,1,2,3@160");
    expect(tens, 4, (size_t[]){121}, 1, NULL, "0,1,2,3@121"); // exceeds the limit by one tensor
    expect(tens, 1, (size_t[]){40}, 1, NULL, "0@40");
    expect(tens, 1, (size_t[]){41}, 1, NULL, "0@41");
    expect(tens, 0, (size_t[]){41}, 1, NULL, "");
    BucketPlan plan = buckets_assign(mixed, 6, (size_t[]){BUCKET_UNLIMITED}, 1, NULL);
    assert_int_equal(plan.bucket_count, 2); // one per key
    buckets_free(&plan);
}

// In ready order buckets are numbered in the order in which they fill up: key DOUBLE's first bucket
// is full before FLOAT's.
static void test_ready_order(void **state) {
    (void)state;
    expect(floats, 4, (size_t[]){500}, 1, (size_t[]){3, 2, 1, 0}, "3,2@500|1@500|0@500");
    expect(tens, 4, (size_t[]){40, 80}, 2, (size_t[]){2, 0, 3, 1}, "2@40|0,3@80|1@80");
    expect(mixed, 6, (size_t[]){400}, 1, (size_t[]){4, 5, 3, 2, 1, 0},
           "5,3@400|4,2@400|0@400|1@400");
}

static void test_smallest_tensor_first(void **state) {
    (void)state;
    // DOUBLE's bucket [1,2] fills up before FLOAT's [0,3]. Without a ready order, buckets are
    // sorted by their lowest tensor.
    const BucketTensor tensors[] = {{100, FLOAT}, {100, DOUBLE}, {100, DOUBLE}, {100, FLOAT}};
    expect(tensors, 4, (size_t[]){200}, 1, NULL, "0,3@200|1,2@200");
    expect(tensors, 4, (size_t[]){200}, 1, (size_t[]){0, 1, 2, 3}, "1,2@200|0,3@200");
}

static void test_reverse(void **state) {
    (void)state;
    char text[TEXT];
    BucketPlan plan = buckets_assign(tens, 4, (size_t[]){40, 80}, 2, NULL);
    buckets_reverse(&plan);
    assert_string_equal(plan_text(&plan, text), "3@80|1,2@80|0@40");
    assert_int_equal(plan.start[0], 0);
    buckets_reverse(&plan);
    assert_string_equal(plan_text(&plan, text), "0@40|1,2@80|3@80");
    buckets_free(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_30_vectors_of_pytorch),
        cmocka_unit_test(test_caps_at_both_ends),
        cmocka_unit_test(test_ready_order),
        cmocka_unit_test(test_smallest_tensor_first),
        cmocka_unit_test(test_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
