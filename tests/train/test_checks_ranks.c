/* test_checks_ranks.c: ranks whose files differ under the same name are named in an error before
 * the first step (common/train/checks_ranks.c). The ranks of a group are simulated one after
 * another: in a first round each adds its row to a table, in a second round each receives the
 * complete table.
 */
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/train/checks.h"

enum { RANKS = 12, TABLE_MAX = 1024, SAMPLES = 400, SAMPLE = 3 * 3 * 5, CLASSES = 3 };

typedef struct Table {
    double sums[TABLE_MAX];
    bool whole; // the table is complete: the second round
} Table;

static void *add_up(Strategy *self, double *values, size_t count, Error *err) {
    (void)err;
    Table *table = self->state;
    assert_true(count <= TABLE_MAX);
    for (size_t i = 0; i < count; i++) {
        if (table->whole) {
            values[i] = table->sums[i];
        } else {
            table->sums[i] += values[i];
        }
    }
    return values;
}

static int nothing_to_wait_for(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum, (void)err;
    return 0;
}

static Strategy sums_in(Table *table) {
    return (Strategy){.sum_start = add_up, .sum_wait = nothing_to_wait_for, .state = table};
}

static Job rank_of(int rank, int ranks, Strategy *sums) {
    return (Job){.strategy = sums, .devices = ranks, .rank = rank, .all_count = 1};
}

// ---- data -------------------------------------------------------------------------------------

static DataSource *make_data(void) {
    DataSource *data = calloc(1, sizeof *data);
    Dataset *sets[] = {&data->train, &data->test};
    snprintf(data->name, sizeof data->name, "made");
    for (int s = 0; s < 2; s++) {
        *sets[s] = (Dataset){.count = SAMPLES, .shape = {3, 3, 5}, .classes = CLASSES};
        sets[s]->bytes = malloc(SAMPLES * SAMPLE);
        sets[s]->labels = malloc(SAMPLES * sizeof *sets[s]->labels);
        for (size_t i = 0; i < SAMPLES * SAMPLE; i++) sets[s]->bytes[i] = (uint8_t)(i * 7 + i / 11);
        for (size_t i = 0; i < SAMPLES; i++) sets[s]->labels[i] = (int64_t)(i % CLASSES);
    }
    return data;
}

// Runs the check for each rank with its data. All ranks must report the same error, which `err`
// receives.
static void compare(DataSource *all[RANKS], Error *err) {
    const TrainConfig config = {.data = NULL};
    static Table table;
    memset(&table, 0, sizeof table);
    for (int round = 0; round < 2; round++) {
        table.whole = round == 1;
        for (int r = 0; r < RANKS; r++) {
            Error own = {0};
            Strategy sums = sums_in(&table);
            Job job = rank_of(r, RANKS, &sums);
            int failed = checks_same_data(&job, &config, all[r], &own);
            if (!table.whole) continue;
            if (failed && own.status != STATUS_USAGE) fail_msg("status %d", own.status);
            if (r == 0) *err = own;
            assert_string_equal(own.message, err->message);
        }
    }
}

typedef void Change(DataSource *data);

static void fewer_samples(DataSource *data) {
    data->train.count = SAMPLES - 3;
}
static void fewer_tests(DataSource *data) {
    data->test.count = SAMPLES - 1;
}
static void turned(DataSource *data) {
    data->train.shape[1] = 5, data->train.shape[2] = 3;
}
static void gray(DataSource *data) {
    data->train.shape[0] = 1;
}
static void narrower(DataSource *data) {
    data->test.shape[2] = 4;
}
static void with_targets(DataSource *data) {
    data->train.target_size = 2;
}
static void labels_of_pixels(DataSource *data) {
    data->train.dense = true;
    free(data->train.labels);
    data->train.labels = calloc((size_t)SAMPLES * 3 * 5, sizeof *data->train.labels);
}
static void more_classes(DataSource *data) {
    data->train.classes = CLASSES + 1;
}
static void one_pixel(DataSource *data) { // small sets are compared completely
    data->train.bytes[SAMPLE * SAMPLES / 2] ^= 1;
}
static void one_test_pixel(DataSource *data) {
    data->test.bytes[0] ^= 128;
}
static void two_labels_swapped(DataSource *data) {
    data->test.labels[SAMPLES / 2] ^= 1;
}

static const struct {
    Change *change;
    const char *says;
} CHANGES[] = {
    {fewer_samples, "not see the same number of training samples as rank 0: 397, not 400"},
    {fewer_tests, "not see the same number of test samples as rank 0: 399, not 400"},
    {turned, "not see the same height of training samples as rank 0: 5, not 3"},
    {gray, "not see the same channels of training samples as rank 0: 1, not 3"},
    {narrower, "not see the same width of test samples as rank 0: 4, not 5"},
    {with_targets, "not see the same targets of training samples as rank 0: 2, not 0"},
    {labels_of_pixels, "not see the same labels of pixels (1: there are some) of training samples "
                       "as rank 0: 1, not 0"},
    {more_classes, "not see the same number of classes of training samples as rank 0: 4, not 3"},
    {one_pixel, "not see the same contents of the training samples as rank 0"},
    {one_test_pixel, "not see the same contents of the test samples as rank 0"},
    {two_labels_swapped, "not see the same contents of the test samples as rank 0"},
};

static void test_same_data(void **state) {
    (void)state;
    for (size_t count = 1; count <= SAMPLES; count += SAMPLES - 1) {
        DataSource *data = make_data(), *twin = make_data(), *all[RANKS];
        Error err = {0};
        data->train.count = twin->train.count = count;
        for (int r = 0; r < RANKS; r++) all[r] = r % 2 ? data : twin;
        compare(all, &err);
        assert_int_equal(err.status, STATUS_OK);
        twin->train.bytes[count * SAMPLE - 1] ^= 1;
        compare(all, &err);
        check_message(&err, "ranks 1, 3, 5, 7, 9, 11 do not see the same contents");
        dataset_close(data);
        dataset_close(twin);
    }
}

static void test_other_data(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        DataSource *data = make_data(), *other = make_data(), *all[RANKS];
        Error one = {0}, two = {0}, first = {0};
        CHANGES[i].change(other);
        for (int r = 0; r < RANKS; r++) all[r] = data;
        all[3] = other;
        compare(all, &one);
        check_message(&one, "--data made: rank 3 does ");
        check_message(&one, CHANGES[i].says);
        all[11] = other;
        compare(all, &two);
        check_message(&two, "--data made: ranks 3, 11 do ");
        for (int r = 0; r < RANKS; r++) all[r] = r == 0 ? other : data;
        compare(all, &first);
        check_message(&first, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 others do ");
        dataset_close(data);
        dataset_close(other);
    }
}

// For a large set, all labels and some samples are compared.
static void test_large_data(void **state) {
    (void)state;
    DataSource *data = make_data(), *other = make_data(), *all[RANKS];
    Error err = {0};
    enum { LARGE = 200000 };
    data->train.count = other->train.count = LARGE;
    for (int r = 0; r < RANKS; r++) all[r] = r == 1 ? other : data;
    for (int s = 0; s < 2; s++) {
        Dataset *set = s ? &other->train : &data->train;
        set->bytes = realloc(set->bytes, (size_t)LARGE * SAMPLE);
        set->labels = realloc(set->labels, LARGE * sizeof *set->labels);
        memset(set->bytes, 0, (size_t)LARGE * SAMPLE);
        memset(set->labels, 0, LARGE * sizeof *set->labels);
    }
    other->train.labels[LARGE / 2 + 1] = 1;
    compare(all, &err);
    check_message(&err, "rank 1 does not see the same contents of the training samples");
    other->train.labels[LARGE / 2 + 1] = 0;
    other->train.bytes[(size_t)LARGE * SAMPLE - 1] = 1; // in the last sample
    err = (Error){0};
    compare(all, &err);
    check_message(&err, "rank 1 does not see the same contents of the training samples");
    dataset_close(data);
    dataset_close(other);
}

// ---- data of other kinds ----------------------------------------------------------------------

typedef enum Kind { NUMBERS, PIXELS, TEXT, KINDS } Kind;

static void *numbered(size_t count, size_t size, int by) { // [count] of `size` bytes each
    unsigned char *bytes = calloc(count, size);
    for (size_t i = 0; i < count; i++) bytes[i * size] = (unsigned char)(i * (size_t)by % 3);
    return bytes;
}

static DataSource *make_kind(Kind kind) {
    DataSource *data = make_data();
    Dataset *set = &data->train;
    free(set->bytes);
    free(set->labels);
    set->bytes = NULL;
    set->labels = NULL;
    if (kind == NUMBERS) {
        set->classes = 0;
        set->target_size = 2;
        set->floats = numbered(SAMPLES * SAMPLE, sizeof *set->floats, 5);
        set->targets = numbered(SAMPLES * 2, sizeof *set->targets, 7);
    } else if (kind == PIXELS) {
        set->dense = true;
        set->bytes = numbered(SAMPLES * SAMPLE, 1, 5);
        set->labels = numbered(SAMPLES * 3 * 5, sizeof *set->labels, 7);
    } else {
        set->shape[0] = SAMPLE;
        set->shape[1] = set->shape[2] = 1;
        set->tokens = numbered(SAMPLES * SAMPLE, sizeof *set->tokens, 5);
        data->character_count = CLASSES;
        data->characters = numbered(CLASSES, sizeof *data->characters, 1);
    }
    return data;
}

// The first byte of the last element of array `which` of a kind of data.
static unsigned char *last_of(DataSource *data, Kind kind, int which) {
    Dataset *set = &data->train;
    const size_t all = SAMPLES * SAMPLE;
    if (kind == NUMBERS && which == 0) return (unsigned char *)(set->floats + all - 1);
    if (kind == NUMBERS) return (unsigned char *)(set->targets + SAMPLES * 2 - 1);
    if (kind == PIXELS && which == 0) return set->bytes + all - 1;
    if (kind == PIXELS) return (unsigned char *)(set->labels + SAMPLES * 3 * 5 - 1);
    return (unsigned char *)(set->tokens + all - 1);
}

static void test_other_kinds(void **state) {
    (void)state;
    for (Kind kind = NUMBERS; kind < KINDS; kind++)
        for (int which = 0; which < (kind == TEXT ? 1 : 2); which++) {
            DataSource *data = make_kind(kind), *twin = make_kind(kind), *all[RANKS];
            Error err = {0};
            for (int r = 0; r < RANKS; r++) all[r] = r == 4 ? twin : data;
            compare(all, &err);
            assert_string_equal(err.message, "");
            *last_of(twin, kind, which) ^= 1;
            compare(all, &err);
            check_message(&err, "rank 4 does not see the same contents of the training samples");
            dataset_close(data);
            dataset_close(twin);
        }
}

// The hash of a text in a checkpoint covers its tokens, their characters, and the windows' length.
static void test_hash_of_text(void **state) {
    (void)state;
    DataSource *data = make_kind(TEXT);
    const uint64_t hash = checks_hash_text(data);
    unsigned char *const parts[] = {last_of(data, TEXT, 0), (unsigned char *)data->train.tokens,
                                    (unsigned char *)(data->characters + CLASSES - 1)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] ^= 1;
        assert_true(checks_hash_text(data) != hash);
        *parts[i] ^= 1;
        assert_true(checks_hash_text(data) == hash);
    }
    data->train.shape[0] /= 3; // the same tokens, in shorter windows
    data->train.count *= 3;
    assert_true(checks_hash_text(data) != hash);
    dataset_close(data);
}

// ---- checkpoints ------------------------------------------------------------------------------

static void test_checkpoints(void **state) {
    (void)state;
    const Progress same = {.step = 50, .checksum = 0xdeadbeef};
    Progress other_step = same, other_bits = same;
    other_step.step = 25;
    other_bits.checksum++;
    const struct {
        const Progress *odd;
        const char *says;
    } cases[] = {
        {&same, ""},
        {&other_step, "--resume run: rank 2 does not see the same step to continue at as rank 0: "
                      "25, not 50"},
        {&other_bits, "--resume run: rank 2 does not see the same checkpoint as rank 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Table table = {.whole = false};
        Error err = {0};
        for (int n = 0; n < 6; n++) { // two rounds of three ranks
            int rank = n % 3;
            table.whole = n >= 3;
            err = (Error){0};
            Strategy sums = sums_in(&table);
            Job job = rank_of(rank, 3, &sums);
            (void)checks_same_checkpoint(&job, "run", rank == 2 ? cases[i].odd : &same, &err);
        }
        assert_string_equal(err.message, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_data),    cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_large_data),   cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_hash_of_text), cmocka_unit_test(test_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
