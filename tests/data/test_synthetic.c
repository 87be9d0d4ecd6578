/* test_synthetic.c: data sets made by a random teacher: the announced loss floor is the teacher's
 * own loss; the sets are pure functions of name and seed; an invalid name gives a clear line.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/data/synthetic.h"

static DataSource *open_good(const char *name) {
    Error err = {0};
    DataSource *source = dataset_open(name, 1, &err);
    if (!source) fail_msg("%s", err.message);
    return source;
}

static void expect_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.9g, not %.9g", got, want);
}

static void expect_error(const char *name, const char *fragment) {
    Error err = {0};
    DataSource *source = dataset_open(name, 1, &err);
    if (source) fail_msg("opened, but '%s' was to come", fragment);
    assert_int_equal(err.status, STATUS_USAGE);
    if (!strstr(err.message, fragment)) fail_msg("'%s' lacks '%s'", err.message, fragment);
    assert_null(strchr(err.message, '\n'));
}

static void test_synthetic_regression(void **state) {
    (void)state;
    DataSource *s = open_good("synthetic:10->5");
    const Dataset *set = &s->train;
    assert_string_equal(s->name, "synthetic");
    assert_int_equal(set->count, 4096);
    assert_int_equal(s->test.count, 1024);
    assert_int_equal(set->classes, 0);
    assert_int_equal(set->target_size, 5);
    assert_int_equal(dataset_sample_size(set), 10);
    expect_near(s->loss_floor, 0.01, 1e-12);
    Teacher teacher = teacher_create(1, 10, TEACHER_HIDDEN, 5);
    double error = 0, signal = 0;
    for (size_t i = 0; i < set->count; i++) {
        double want[5];
        float x[10];
        dataset_sample(set, i, NULL, 3, x);
        teacher_apply(&teacher, x, want);
        for (size_t o = 0; o < 5; o++) {
            error += pow((double)set->targets[i * 5 + o] - want[o], 2);
            signal += want[o] * want[o];
        }
    }
    // The mean of 20,480 squared normals has a standard deviation of 1 % of the variance.
    expect_near(error / (4096 * 5), s->loss_floor, 0.05 * s->loss_floor);
    assert_true(signal / (4096 * 5) > 0.1); // a constant model's loss is far above the floor
    assert_true(memcmp(s->train.floats, s->test.floats, 40) != 0);
    teacher_close(&teacher);
    dataset_close(s);
}

static void test_synthetic_classification(void **state) {
    (void)state;
    DataSource *s = open_good("synthetic:3x4x4->10@8000");
    const Dataset *set = &s->train;
    assert_int_equal(set->count, 8000);
    assert_int_equal(s->test.count, 2000);
    assert_int_equal(set->classes, 10);
    Teacher teacher = teacher_create(1, 48, 0, 10);
    double loss = 0, mean = 0;
    size_t seen[10] = {0};
    for (size_t i = 0; i < set->count; i++) {
        double logits[10], sum = 0;
        teacher_apply(&teacher, set->floats + i * 48, logits);
        for (size_t k = 0; k < 10; k++) sum += exp(logits[k]);
        assert_in_range(set->labels[i], 0, 9);
        loss += log(sum) - logits[set->labels[i]];
        seen[set->labels[i]]++;
        mean += (double)set->floats[i * 48];
    }
    // The teacher's own loss on its labels: a standard deviation of about 1 nat each, 0.011 for the
    // mean.
    expect_near(loss / 8000, s->loss_floor, 0.05);
    assert_true(s->loss_floor > 0.5 && s->loss_floor < 1.5);
    for (size_t k = 0; k < 10; k++) assert_true(seen[k] > 200);
    expect_near(mean / 8000, 0, 0.05);
    teacher_close(&teacher);
    dataset_close(s);
}

static double weighted(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; values && i < count; i++) sum += (double)values[i] * (double)(i % 7 + 1);
    return sum;
}

// Known values, as weighted sums: data sets of earlier trainings must not change.
static void test_synthetic_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double floats[2], targets[2], labels[2], floor; // [training, test]
    } cases[] = {
        {"synthetic:10->5@64", {203.844199, -74.3040875}, {-336.304229, -47.4088386}, {0, 0}, 0.01},
        {"synthetic:2x3x4->7@64", {42.6232103, 105.641913}, {0, 0}, {763, 217}, 0.776345084},
        {"synthetic:1->1@3", {-1.97182035, 1.06630695}, {-6.07881594, 0.105850488}, {0, 0}, 0.01},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DataSource *s = dataset_open(cases[i].name, 11, NULL);
        assert_non_null(s);
        const Dataset *sets[] = {&s->train, &s->test};
        for (int k = 0; k < 2; k++) {
            const Dataset *set = sets[k];
            size_t count = set->count;
            expect_near(weighted(set->floats, count * dataset_sample_size(set)), cases[i].floats[k],
                        1e-4);
            expect_near(weighted(set->targets, count * set->target_size), cases[i].targets[k],
                        1e-4);
            double labels = 0;
            for (size_t l = 0; set->labels && l < count; l++)
                labels += (double)set->labels[l] * (double)(l % 7 + 1);
            assert_true(labels == cases[i].labels[k]);
        }
        expect_near(s->loss_floor, cases[i].floor, 1e-7);
        dataset_close(s);
    }
}

static void test_synthetic_is_a_function_of_the_seed(void **state) {
    (void)state;
    const char *name = "synthetic:2x3x3->4@40";
    DataSource *a = dataset_open(name, 7, NULL), *b = dataset_open(name, 7, NULL);
    DataSource *other = dataset_open(name, 8, NULL);
    DataSource *longer = dataset_open("synthetic:2x3x3->4@60", 7, NULL);
    size_t bytes = 40 * 18 * sizeof(float), labels = 40 * sizeof(int64_t);
    assert_memory_equal(a->train.floats, b->train.floats, bytes);
    assert_memory_equal(a->train.labels, b->train.labels, labels);
    assert_memory_equal(a->test.floats, b->test.floats, bytes / 4);
    assert_memory_equal(a->train.floats, longer->train.floats, bytes);
    assert_memory_equal(a->train.labels, longer->train.labels, labels);
    assert_memory_equal(a->test.labels, longer->test.labels, labels / 4);
    assert_memory_not_equal(a->train.floats, other->train.floats, bytes);
    assert_memory_not_equal(a->train.labels, other->train.labels, labels);
    dataset_close(a);
    dataset_close(b);
    dataset_close(other);
    dataset_close(longer);
}

// The inputs, the samples, the targets and the teacher's matrix each take at most 2^31 floats, of
// 4 bytes.
static void test_synthetic_sizes(void **state) {
    (void)state;
    static const struct {
        const char *largest, *larger;
    } cases[] = {
        {"synthetic:4->1@536870912", "synthetic:4->1@536870913"},
        {"synthetic:1->4@536870912", "synthetic:1->4@536870913"},
        {"synthetic:536870912->4@1", "synthetic:536870913->4@1"},
        {"synthetic:2x1x536870912->2@2", "synthetic:2x1x536870913->2@2"},
        {"synthetic:2x2x2->2@268435456", "synthetic:2x2x2->2@268435457"},
        {"synthetic:999999999->2@2", "synthetic:999999999x3x1->2@1"},
    };
    DataSpec spec;
    size_t inputs;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        if (synthetic_parse(cases[i].largest, &spec, &inputs, &err) != 0)
            fail_msg("%s", err.message);
        expect_error(cases[i].larger, "that takes more than 8 GiB");
    }
    assert_int_equal(inputs, 999999999);
    assert_int_equal(synthetic_parse("synthetic", &spec, &inputs, NULL), 0);
    assert_true(spec.side[0] == 3 && spec.side[1] == 32 && spec.side[2] == 32);
    assert_true(spec.sides == 3 && spec.outputs == 10 && spec.count == 4096);
    assert_int_equal(inputs, 3 * 32 * 32);
}

static void test_synthetic_names(void **state) {
    (void)state;
    static const char *const bad[] = {
        "synthetic:",
        "synthetic:10",
        "synthetic:10->",
        "synthetic:->5",
        "synthetic:10->0",
        "synthetic:0->5",
        "synthetic:3x32->5",
        "synthetic:3x2x2x2->5",
        "synthetic:10->5@",
        "synthetic:10->5@0",
        "synthetic:10->5 ",
        "synthetic:-1->5",
        "synthetic:10->5@x",
        "synthetic:10-5",
        "synthetic:x->5",
        "synthetic:10->5@99999999999",
        // A fourth side, also if a missing check would take it for the number of sides.
        "synthetic:3x2x2x1->5",
        "synthetic:3x2x2x3->5",
        "synthetic:1000000000->1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(bad[i], "want synthetic:SIZE->TARGETS (regression)");
        expect_error(bad[i], bad[i]);
    }
    expect_error("synthetic:3x3x3->1", "at least 2 classes");
    expect_error("synthetic:999999999x9x9->9", "more than 8 GiB");
    expect_error("synthetic:1->999999999", "more than 8 GiB");
    expect_error("synthetics", "No such file or directory");
    DataSource *one = open_good("synthetic:1->1@1");
    assert_int_equal(one->train.count, 1);
    assert_int_equal(one->test.count, 1);
    dataset_close(one);
    dataset_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synthetic_regression),
        cmocka_unit_test(test_synthetic_classification),
        cmocka_unit_test(test_synthetic_numbers),
        cmocka_unit_test(test_synthetic_is_a_function_of_the_seed),
        cmocka_unit_test(test_synthetic_sizes),
        cmocka_unit_test(test_synthetic_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
