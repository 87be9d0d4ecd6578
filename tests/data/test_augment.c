/* test_augment.c: crops and flips of pictures: every view occurs about as often as the others, and
 * is a function of seed, sample and epoch. (Labels of pixels: test_shapes.c.)
 */
#include "tests/rigs/check.h"

#include "common/data/dataset.h"

// Two images of 2x3 pixels, all different and not zero.
static Dataset small_images(uint8_t *bytes) {
    for (uint8_t i = 0; i < 12; i++) bytes[i] = (uint8_t)(20 * (i + 1));
    return (Dataset){
        .count = 2, .shape = {1, 2, 3}, .bytes = bytes, .mean = {0.25f}, .std = {0.5f}};
}

// Returns which of the 18 crops and flips of an image (pad 1) x is, or -1.
static int find_view(const Dataset *set, size_t image, const float *x) {
    for (int view = 0; view < 18; view++) {
        int down = view / 6 - 1, right = view / 2 % 3 - 1, equal = 0;
        for (int p = 0; p < 6; p++) {
            int row = p / 3 + down, column = (view % 2 ? 2 - p % 3 : p % 3) + right;
            bool inside = row >= 0 && row < 2 && column >= 0 && column < 3;
            int byte = inside ? set->bytes[6 * (int)image + row * 3 + column] : 0;
            equal += x[p] == ((float)byte / 255.0f - 0.25f) / 0.5f;
        }
        if (equal == 6) return view;
    }
    return -1;
}

static void test_augment(void **state) {
    (void)state;
    uint8_t bytes[12];
    Dataset set = small_images(bytes);
    Augment augment = {.crop_pad = 1, .flip = true, .seed = 5}, other = augment;
    other.seed = 6;
    size_t seen[18] = {0}, differ = 0;
    for (size_t epoch = 0; epoch < 900; epoch++) {
        float x[6], again[6], else_where[6];
        dataset_sample(&set, 1, &augment, epoch, x);
        int view = find_view(&set, 1, x);
        assert_in_range(view, 0, 17);
        seen[view]++;
        dataset_sample(&set, 0, &augment, epoch, else_where); // other draws change nothing
        dataset_sample(&set, 1, &augment, epoch, again);
        assert_memory_equal(x, again, sizeof x);
        dataset_sample(&set, 1, &other, epoch, else_where);
        differ += memcmp(x, else_where, sizeof x) != 0;
    }
    for (size_t view = 0; view < 18; view++) assert_in_range(seen[view], 20, 90); // 50 expected
    assert_in_range(differ, 700, 900);
}

// Draws of different samples and epochs are independent: views agree only by chance.
static void test_augment_draws_are_independent(void **state) {
    (void)state;
    uint8_t bytes[12];
    Dataset set = small_images(bytes);
    Augment augment = {.crop_pad = 1, .flip = true, .seed = 5};
    for (size_t apart = 0; apart < 9; apart++) {
        size_t equal = 0;
        for (size_t epoch = 0; epoch < 900; epoch++) {
            float x[6], y[6];
            dataset_sample(&set, 0, &augment, epoch + apart, x);
            dataset_sample(&set, 1, &augment, epoch, y);
            equal += find_view(&set, 0, x) == find_view(&set, 1, y);
        }
        assert_in_range(equal, 20, 90); // 50 expected
    }
}

static void test_augment_parts(void **state) {
    (void)state;
    uint8_t bytes[12];
    Dataset set = small_images(bytes);
    float x[6], plain[6];
    dataset_sample(&set, 1, NULL, 0, plain);
    assert_int_equal(find_view(&set, 1, plain), 8); // neither shifted nor flipped
    Augment nothing = {.seed = 5}, flip = {.flip = true, .seed = 5};
    size_t flipped = 0;
    for (size_t epoch = 0; epoch < 100; epoch++) {
        dataset_sample(&set, 1, &nothing, epoch, x);
        assert_memory_equal(x, plain, sizeof x);
        dataset_sample(&set, 1, &flip, epoch, x);
        int view = find_view(&set, 1, x);
        assert_in_range(view, 8, 9);
        flipped += view == 9;
    }
    assert_in_range(flipped, 30, 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_augment),
        cmocka_unit_test(test_augment_draws_are_independent),
        cmocka_unit_test(test_augment_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
