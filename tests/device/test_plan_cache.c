/* test_plan_cache.c: plans are found by all bytes of their keys, in any order of insertion, and
 * each is closed once.
 */
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/device/plan_cache.h"

typedef struct Key {
    uint64_t m, n, flags;
} Key;

typedef struct Plan {
    Key key;
    int *closed;
} Plan;

static void close_plan(void *memory) {
    Plan *plan = memory;
    (*plan->closed)++;
    free(plan);
}

static Plan *plan_for(Key key, int *closed) {
    Plan *plan = malloc(sizeof *plan);
    assert_non_null(plan);
    *plan = (Plan){key, closed};
    return plan;
}

// 7 and 13 are prime to the number of keys: each key occurs once, in no monotonic order.
enum { KEYS = 100 };
static Key key_at(uint64_t i) {
    return (Key){.m = i * 7 % KEYS, .n = i % 3, .flags = (i * 13 % KEYS) << 40};
}

static void all_are_found(void **state) {
    (void)state;
    int closed = 0;
    PlanCache *cache = plan_cache_create(sizeof(Key), close_plan);
    for (uint64_t i = 0; i < KEYS; i++) {
        Key key = key_at(i);
        assert_null(plan_cache_find(cache, &key));
        plan_cache_add(cache, &key, plan_for(key, &closed));
        for (uint64_t j = 0; j <= i; j++) { // earlier plans keep their addresses
            Key old = key_at(j);
            const Plan *plan = plan_cache_find(cache, &old);
            assert_non_null(plan);
            assert_memory_equal(&plan->key, &old, sizeof old);
        }
    }
    assert_int_equal(closed, 0);
    plan_cache_close(cache);
    assert_int_equal(closed, KEYS);
}

static void every_byte_of_a_key_counts(void **state) {
    (void)state;
    int closed = 0;
    PlanCache *cache = plan_cache_create(sizeof(Key), close_plan);
    Key key = {3, 4, 5};
    plan_cache_add(cache, &key, plan_for(key, &closed));
    for (size_t byte = 0; byte < sizeof key; byte++) {
        Key other = key;
        ((unsigned char *)&other)[byte] ^= 0x80;
        assert_null(plan_cache_find(cache, &other));
    }
    assert_non_null(plan_cache_find(cache, &key));
    plan_cache_close(cache);
}

static void an_empty_cache(void **state) {
    (void)state;
    PlanCache *cache = plan_cache_create(sizeof(Key), close_plan);
    Key key = {0, 0, 0};
    assert_null(plan_cache_find(cache, &key));
    plan_cache_close(cache);
    plan_cache_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_found),
        cmocka_unit_test(every_byte_of_a_key_counts),
        cmocka_unit_test(an_empty_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
