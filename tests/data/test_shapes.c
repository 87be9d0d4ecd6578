/* test_shapes.c: synthetic images with a label for every pixel: pure functions of name and seed,
 * with ignored outlines; augmentation moves labels with their pixels; the loader returns both.
 */
#include "tests/rigs/check.h"

#include "common/base/memory.h"
#include "common/data/formats.h"
#include "common/data/loader.h"

static DataSource *open_good(const char *name, uint64_t seed) {
    Error err = {0};
    DataSource *source = dataset_open(name, seed, &err);
    CHECK_OK(source, err);
    return source;
}

static void shapes_have_all_classes_and_ignored_outlines(void **state) {
    (void)state;
    DataSource *s = open_good("shapes:24x32@100", 3);
    const Dataset *set = &s->train;
    assert_string_equal(s->name, "shapes");
    assert_true(set->dense && s->test.dense);
    assert_int_equal(set->count, 100);
    assert_int_equal(s->test.count, 20);
    assert_int_equal(set->classes, SHAPES_CLASSES);
    assert_int_equal(dataset_label_size(set), 24 * 32);
    assert_int_equal(dataset_sample_size(set), 3 * 24 * 32);
    size_t seen[SHAPES_CLASSES] = {0}, ignored = 0, pixels = 100 * 24 * 32, edges[4] = {0};
    for (size_t i = 0; i < pixels; i++) {
        assert_in_range(set->labels[i] + 1, 0, SHAPES_CLASSES);
        if (set->labels[i] == LABEL_IGNORE)
            ignored++;
        else
            seen[set->labels[i]]++;
    }
    for (size_t k = 0; k < SHAPES_CLASSES; k++) assert_true(seen[k] > pixels / 50);
    // A shape that is cut by an edge of the image has no outline there.
    for (size_t i = 0; i < pixels; i++) {
        const size_t row = i / 32 % 24, column = i % 32;
        if (set->labels[i] <= SHAPES_BACKGROUND) continue;
        edges[0] += row == 0;
        edges[1] += row == 23;
        edges[2] += column == 0;
        edges[3] += column == 31;
    }
    for (int edge = 0; edge < 4; edge++) assert_true(edges[edge] > 0);
    // As in earlier versions: a shape that ends with the last row or column is no outline there.
    int64_t sum = 0;
    for (size_t i = 0; i < pixels; i++) sum += set->labels[i] * (int64_t)(i % 11 + 1);
    assert_int_equal(sum, 70777);
    assert_in_range(ignored, pixels / 50, pixels / 5);
    assert_true(seen[SHAPES_BACKGROUND] > pixels / 2);
    dataset_close(s);
}

// Two adjacent labelled pixels have the same class: outlines separate the classes.
static void shapes_outlines_part_the_classes(void **state) {
    (void)state;
    DataSource *s = open_good("shapes:32x32@50", 5);
    for (size_t i = 0; i < 50; i++) {
        const int64_t *labels = s->train.labels + i * 32 * 32;
        for (size_t p = 0; p < 32 * 31; p++) {
            int64_t here = labels[p], below = labels[p + 32];
            assert_true(here < 0 || below < 0 || here == below);
        }
    }
    dataset_close(s);
}

// Two images, pixel by pixel: 1 is a circle, 2 a rectangle, 3 a triangle, - an outline (ignored).
static void shapes_are_drawn_as_ever(void **state) {
    (void)state;
    enum { HEIGHT = 15, WIDTH = 21 };
    static const char *const drawn[2 * HEIGHT] = {
        ".....................", //
        "...........--........", //
        "...........------....", //
        "..........-33--11-...", //
        "..........-33--111-..", //
        ".........-3333--11-..", //
        ".........-3333--11-..", //
        ".........-3333--11-..", //
        "........-333333--1-..", //
        ".......-----------...", //
        ".......----------....", //
        ".......-22222-.......", //
        ".......-22222-.......", //
        ".......-------.......", //
        ".....................", //

        ".....................", //
        "..----...............", //
        ".-1111-..............", //
        ".-11111-....--------.", //
        "-111111-....-222222-.", //
        ".-11111-....-222222-.", //
        ".-1111-.....-222222-.", //
        "..-----.....--------.", //
        "...........-.........", //
        "...........--........", //
        "..........-3-........", //
        "..........-3-........", //
        ".........-333-.......", //
        ".........-333-.......", //
        "........-33333-......", //
    };
    DataSource *s = open_good("shapes:15x21@2", 2);
    for (size_t row = 0; row < 2 * HEIGHT; row++) {
        char line[WIDTH + 1] = "";
        for (size_t i = 0; i < WIDTH; i++) {
            int64_t label = s->train.labels[row * WIDTH + i];
            line[i] = label == LABEL_IGNORE ? '-' : ".123"[label];
        }
        assert_string_equal(line, drawn[row]);
    }
    // Colours, by a weighted sum with a tolerance: another C library's logarithm may round a few
    // bytes differently.
    const double wanted[] = {1052709, 744713};
    const Dataset *sets[] = {&s->train, &s->test};
    for (int k = 0; k < 2; k++) {
        double sum = 0;
        for (size_t i = 0; i < sets[k]->count * 3 * HEIGHT * WIDTH; i++)
            sum += (double)sets[k]->bytes[i] * (double)(i % 7 + 1);
        check_close(sum, wanted[k], 4e-5, "the colours");
    }
    dataset_close(s);
}

static void shapes_are_a_function_of_name_and_seed(void **state) {
    (void)state;
    DataSource *a = open_good("shapes:16x12@10", 7), *b = open_good("shapes:16x12@10", 7);
    DataSource *other = open_good("shapes:16x12@10", 8), *longer = open_good("shapes:16x12@15", 7);
    size_t bytes = 10 * 3 * 16 * 12, labels = 10 * 16 * 12 * sizeof(int64_t);
    assert_memory_equal(a->train.bytes, b->train.bytes, bytes);
    assert_memory_equal(a->train.labels, b->train.labels, labels);
    assert_memory_equal(a->test.bytes, b->test.bytes, bytes / 5);
    assert_memory_equal(a->train.bytes, longer->train.bytes, bytes);
    assert_memory_equal(a->train.labels, longer->train.labels, labels);
    assert_memory_equal(a->test.labels, longer->test.labels, labels / 5);
    assert_memory_not_equal(a->train.bytes, other->train.bytes, bytes);
    assert_memory_not_equal(a->train.labels, other->train.labels, labels);
    assert_memory_not_equal(a->train.bytes, a->test.bytes, bytes / 5);
    assert_memory_equal(a->train.mean, a->test.mean, sizeof a->train.mean);
    dataset_close(a);
    dataset_close(b);
    dataset_close(other);
    dataset_close(longer);
}

static void shapes_names_are_checked(void **state) {
    (void)state;
    const struct {
        const char *name, *message;
    } bad[] = {
        {"shapes:", "shapes:: want shapes:HEIGHTxWIDTH"},
        {"shapes:32", "shapes:32: want"},
        {"shapes:32x", "want"},
        {"shapes:32x32@", "want"},
        {"shapes:32x32@0", "want"},
        {"shapes:32x32@9 ", "want"},
        {"shapes:-8x32", "want"},
        {"shapes:4x32", "sides must be of 8 to"},
        {"shapes:8x4097", "sides must be of 8 to"},
        {"shapes:4097x8", "sides must be of 8 to"},
        {"shapes:7x8", "sides must be of 8 to"},
        {"shapes:8x7", "sides must be of 8 to"},
        {"shapes:8x8->5", "want"},
        {"shapes:8x8->", "want"},
        {"shapes:8x8:0", "want"},
        {"shapes:8x8x8", "want"},
        {"shapes:8x8x8x2", "want"}, // two sides, if the fourth were their number
        {"shapes:4096x4096@17", "more than 3 GiB"},
        {"shapes:64x64@999999999", "more than 3 GiB"},
        {"shape", "No such file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error err = {0};
        assert_null(dataset_open(bad[i].name, 0, &err));
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, bad[i].message);
    }
    DataSource *one = open_good("shapes:8x8@1", 0);
    assert_int_equal(one->train.count, 1);
    assert_int_equal(one->test.count, 1);
    dataset_close(one);
    static const char *const good[] = {"shapes", "shapes:4096x8@1", "shapes:8x4096@1"};
    static const size_t tests[] = {600, 1, 1};
    for (int i = 0; i < 3; i++) {
        one = open_good(good[i], 0);
        assert_int_equal(one->test.count, tests[i]);
        dataset_close(one);
    }
    one = open_good("shapes:8x8@10", 0);
    assert_int_equal(one->test.count, 2);
    dataset_close(one);
}

// Images whose red byte is the label + 10, so that a pixel identifies its label.
static Dataset marked_set(size_t height, size_t width) {
    Dataset set = {.count = 3, .shape = {1, height, width}, .classes = 200, .dense = true};
    set.bytes = memory_zalloc(3 * height * width);
    set.labels = memory_zalloc(3 * height * width * sizeof *set.labels);
    for (size_t i = 0; i < 3 * height * width; i++) {
        set.labels[i] = (int64_t)(i * 7 % 200);
        set.bytes[i] = (uint8_t)(set.labels[i] + 10);
    }
    set.std[0] = 1;
    return set;
}

static void augmented_labels_move_with_their_pixels(void **state) {
    (void)state;
    enum { HEIGHT = 9, WIDTH = 12, PLANE = HEIGHT * WIDTH };
    Dataset set = marked_set(HEIGHT, WIDTH);
    const Augment augment = {.crop_pad = 4, .flip = true, .seed = 2};
    size_t outside = 0, moved = 0;
    int64_t sum = 0; // weighted by position: identifies the drawn views
    for (size_t epoch = 0; epoch < 20; epoch++) {
        float pixels[PLANE];
        int64_t labels[PLANE], plain[PLANE];
        size_t index = epoch % 3;
        dataset_sample(&set, index, &augment, epoch, pixels);
        dataset_sample_labels(&set, index, &augment, epoch, labels);
        dataset_sample_labels(&set, index, NULL, epoch, plain);
        assert_memory_equal(plain, set.labels + index * PLANE, sizeof plain);
        for (size_t p = 0; p < PLANE; p++) {
            long byte = lrintf(pixels[p] * 255); // mean 0, standard deviation 1
            assert_int_equal(labels[p], byte == 0 ? LABEL_IGNORE : byte - 10);
            outside += byte == 0;
            sum += labels[p] * (int64_t)(p % 11 + 1);
        }
        moved += memcmp(labels, plain, sizeof plain) != 0;
    }
    assert_true(outside > 0 && moved > 10);
    assert_int_equal(sum, 795870);
    free(set.bytes);
    free(set.labels);
}

static void the_loader_hands_out_labels_of_pixels(void **state) {
    Device *device = device_open("cpu:0", NULL);
    (void)state;
    DataSource *s = open_good("shapes:8x8@10", 1);
    const Augment augment = {.crop_pad = 1, .flip = true, .seed = 4};
    for (size_t depth = 0; depth < 3; depth++) {
        Error err = {0};
        Sampler *sampler = sampler_whole(10, 4, true, false, 6, &err);
        CHECK_OK(sampler, err);
        Loader *loader = loader_create(&s->train, sampler, &augment, depth, device);
        loader_start(loader, 1, 0);
        for (size_t number = 0; number < 3; number++) {
            const Batch *batch = loader_next(loader);
            assert_int_equal(batch->count, number < 2 ? 4 : 2);
            for (size_t i = 0; i < batch->count; i++) {
                int64_t labels[64];
                float pixels[192];
                size_t index = sampler->indices[sampler->start[number] + i];
                dataset_sample(&s->train, index, &augment, 1, pixels);
                dataset_sample_labels(&s->train, index, &augment, 1, labels);
                assert_memory_equal(batch->samples + i * 192, pixels, sizeof pixels);
                assert_memory_equal(batch->labels + i * 64, labels, sizeof labels);
            }
        }
        assert_null(loader_next(loader));
        loader_close(loader);
        sampler_close(sampler);
    }
    dataset_close(s);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_all_classes_and_ignored_outlines),
        cmocka_unit_test(shapes_outlines_part_the_classes),
        cmocka_unit_test(shapes_are_drawn_as_ever),
        cmocka_unit_test(shapes_are_a_function_of_name_and_seed),
        cmocka_unit_test(shapes_names_are_checked),
        cmocka_unit_test(augmented_labels_move_with_their_pixels),
        cmocka_unit_test(the_loader_hands_out_labels_of_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
