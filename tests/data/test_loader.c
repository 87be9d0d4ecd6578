/* test_loader.c: at every depth the loader returns the batches of the sampler and the data set, in
 * order, and can be restarted or closed at any time. Also run under ThreadSanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/data/loader.h"

static const size_t DEPTHS[] = {0, 1, 2, 3, 40};
enum { DEPTH_COUNT = sizeof DEPTHS / sizeof *DEPTHS };

// Lets the loader's thread run ahead. The results must not depend on it.
static void pause_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

static DataSource *open_source(const char *name) {
    Error err = {0};
    DataSource *source = dataset_open(name, 4, &err);
    if (!source) fail_msg("%s", err.message);
    return source;
}

// Pixels' labels are cropped and flipped with the pixels.
static void expect_labels(const Batch *got, const Dataset *set, size_t i, size_t index,
                          const Augment *augment, size_t epoch) {
    size_t size = dataset_label_size(set);
    int64_t *want = memory_zalloc(size * sizeof *want);
    dataset_sample_labels(set, index, augment, epoch, want);
    assert_memory_equal(got->labels + i * size, want, size * sizeof *want);
    free(want);
}

// Compares with batch `number` of a second sampler, which has the epoch's order, and
// dataset_sample.
static void expect_batch(const Batch *got, const Dataset *set, const Sampler *sampler,
                         const Augment *augment, size_t epoch, size_t number) {
    assert_non_null(got);
    assert_ptr_equal(got->set, set);
    assert_int_equal(got->count, sampler->start[number + 1] - sampler->start[number]);
    assert_int_equal(got->global_count, sampler->global[number]);
    assert_true((got->labels != NULL) == dataset_has_labels(set));
    assert_true((got->tokens != NULL) == (set->tokens != NULL));
    assert_true((got->targets != NULL) == (set->targets != NULL));
    size_t size = dataset_sample_size(set);
    float *want = memory_zalloc(size * sizeof *want);
    int64_t *tokens = memory_zalloc(size * sizeof *tokens);
    for (size_t i = 0; i < got->count; i++) {
        size_t index = sampler->indices[sampler->start[number] + i];
        if (set->tokens) {
            dataset_sample_tokens(set, index, tokens);
            assert_memory_equal(got->tokens + i * size, tokens, size * sizeof *tokens);
        } else {
            dataset_sample(set, index, augment, epoch, want);
            assert_memory_equal(got->samples + i * size, want, size * sizeof *want);
        }
        if (got->labels) expect_labels(got, set, i, index, augment, epoch);
        if (set->targets)
            assert_memory_equal(got->targets + i * set->target_size,
                                set->targets + index * set->target_size,
                                set->target_size * sizeof *want);
    }
    free(tokens);
    free(want);
}

// Expects the batches from `first` to the end of the epoch.
static void expect_rest(Loader *loader, const Dataset *set, Sampler *own, const Augment *augment,
                        size_t epoch, size_t first) {
    sampler_set_epoch(own, epoch);
    for (size_t i = first; i < own->batch_count; i++)
        expect_batch(loader_next(loader), set, own, augment, epoch, i);
    assert_null(loader_next(loader));
    assert_null(loader_next(loader));
}

static void check_source(const char *name, const Augment *augment, int world, int rank) {
    Device *device = device_open("cpu:0", NULL);
    DataSource *source = open_source(name);
    const Dataset *set = &source->train;
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        Sampler *sampler = sampler_blocked(set->count, 64, world, rank, true, false, 2, NULL);
        Sampler *own = sampler_blocked(set->count, 64, world, rank, true, false, 2, NULL);
        Loader *loader = loader_create(set, sampler, augment, DEPTHS[d], device);
        assert_null(loader_next(loader)); // before loader_start
        for (size_t epoch = 0; epoch < 3; epoch++) {
            loader_start(loader, epoch, 0);
            expect_rest(loader, set, own, augment, epoch, 0);
        }
        loader_close(loader);
        sampler_close(sampler);
        sampler_close(own);
    }
    dataset_close(source);
    device_close(device);
}

static void test_contents_do_not_depend_on_depth(void **state) {
    (void)state;
    check_source("digits", NULL, 1, 0);
    check_source("digits", &(Augment){.crop_pad = 1, .flip = true, .seed = 3}, 2, 1);
    check_source("shapes:8x8@150", &(Augment){.crop_pad = 2, .flip = true, .seed = 5}, 1, 0);
    check_source("synthetic:10->5@300", NULL, 1, 0);
    check_source("text", NULL, 2, 1);
    check_source("synthetic:3x4x4->10@130", NULL, 3, 2); // last batch: 2 rows for 3 ranks
}

static void test_start_in_the_middle(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("digits");
    const Dataset *set = &source->train;
    Augment augment = {.crop_pad = 2, .flip = true, .seed = 9};
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        Sampler *sampler = sampler_whole(set->count, 100, true, false, 2, NULL);
        Sampler *own = sampler_whole(set->count, 100, true, false, 2, NULL);
        Loader *loader = loader_create(set, sampler, &augment, DEPTHS[d], device);
        for (size_t first = 0; first < 17; first += 4) {
            loader_start(loader, 5, first); // there are 15 batches
            expect_rest(loader, set, own, &augment, 5, first);
        }
        loader_close(loader);
        sampler_close(sampler);
        sampler_close(own);
    }
    dataset_close(source);
    device_close(device);
}

// An epoch may be abandoned after any batch, with an idle or a working thread; the next epoch is
// complete.
static void test_abandoned_epochs(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("synthetic:3x8x8->10@400");
    const Dataset *set = &source->train;
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        Sampler *sampler = sampler_whole(set->count, 32, true, false, 1, NULL);
        Sampler *own = sampler_whole(set->count, 32, true, false, 1, NULL);
        Loader *loader = loader_create(set, sampler, NULL, DEPTHS[d], device);
        for (size_t taken = 0; taken < 8; taken++) {
            loader_start(loader, taken, 0);
            sampler_set_epoch(own, taken);
            for (size_t i = 0; i < taken; i++)
                expect_batch(loader_next(loader), set, own, NULL, taken, i);
            if (taken % 2) pause_briefly();
            loader_start(loader, 100 + taken, taken);
            if (taken % 3 == 0) loader_start(loader, 100 + taken, taken);
            expect_rest(loader, set, own, NULL, 100 + taken, taken);
        }
        loader_close(loader);
        sampler_close(sampler);
        sampler_close(own);
    }
    dataset_close(source);
    device_close(device);
}

static void test_held_batch_stays(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("synthetic:3x8x8->10@400");
    const Dataset *set = &source->train;
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        Sampler *sampler = sampler_whole(set->count, 32, true, false, 1, NULL);
        Sampler *own = sampler_whole(set->count, 32, true, false, 1, NULL);
        Loader *loader = loader_create(set, sampler, NULL, DEPTHS[d], device);
        loader_start(loader, 0, 0);
        for (size_t i = 0; i < own->batch_count; i++) {
            const Batch *batch = loader_next(loader);
            pause_briefly();
            expect_batch(batch, set, own, NULL, 0, i);
        }
        loader_close(loader);
        sampler_close(sampler);
        sampler_close(own);
    }
    dataset_close(source);
    device_close(device);
}

static void test_close_at_any_moment(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("digits");
    const Dataset *set = &source->train;
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        for (int moment = 0; moment < 5; moment++) {
            Sampler *sampler = sampler_whole(set->count, 16, true, false, 1, NULL);
            Loader *loader = loader_create(set, sampler, NULL, DEPTHS[d], device);
            if (moment > 0) loader_start(loader, 0, 0);
            if (moment > 1) assert_non_null(loader_next(loader));
            if (moment > 2) pause_briefly(); // until the ring is full
            if (moment > 3)
                while (loader_next(loader)) continue;
            loader_close(loader);
            sampler_close(sampler);
        }
    }
    loader_close(NULL);
    dataset_close(source);
    device_close(device);
}

// The next epoch is started while the thread fills a large batch, which takes milliseconds: that
// batch must not be returned in the new epoch, nor get the new epoch's samples.
static void test_start_while_a_batch_is_filled(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("synthetic:3x32x32->10@2000");
    const Dataset *set = &source->train;
    for (size_t depth = 1; depth <= 4; depth++) {
        Sampler *sampler = sampler_whole(set->count, 500, true, false, 1, NULL);
        Sampler *own = sampler_whole(set->count, 500, true, false, 1, NULL);
        Loader *loader = loader_create(set, sampler, NULL, depth, device);
        for (size_t epoch = 0; epoch < 3; epoch++) {
            loader_start(loader, 100 + epoch, 0);
            assert_non_null(loader_next(loader)); // the thread fills the next batch
            loader_start(loader, epoch, 0);
            expect_rest(loader, set, own, NULL, epoch, 0);
        }
        loader_close(loader);
        sampler_close(sampler);
        sampler_close(own);
    }
    dataset_close(source);
    device_close(device);
}

// A rank without evaluation batches.
static void test_no_batches(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *source = open_source("synthetic:2->1@5");
    for (size_t d = 0; d < DEPTH_COUNT; d++) {
        Sampler *sampler = sampler_evaluation(source->train.count, 2, 4, 3);
        Loader *loader = loader_create(&source->train, sampler, NULL, DEPTHS[d], device);
        loader_start(loader, 0, 0);
        assert_null(loader_next(loader));
        loader_close(loader);
        sampler_close(sampler);
    }
    dataset_close(source);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents_do_not_depend_on_depth),
        cmocka_unit_test(test_start_in_the_middle),
        cmocka_unit_test(test_abandoned_epochs),
        cmocka_unit_test(test_held_batch_stays),
        cmocka_unit_test(test_close_at_any_moment),
        cmocka_unit_test(test_start_while_a_batch_is_filled),
        cmocka_unit_test(test_no_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
