/* test_rank_helpers.c: ddp/group/rank_helpers.h, as threads and as processes, and in a world of one
 * without a group.
 */
#include "tests/rigs/ranks.h"

#include "common/base/memory.h"
#include "ddp/group/rank_helpers.h"

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) problem(outcome, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)

static void play(RankBody *body, int first_world, int last_world) {
    for (int world = first_world; world <= last_world; world++) {
        play_ranks(AS_THREADS, world, 60, body, NULL, NULL);
        if (!UNDER_TSAN) play_ranks(AS_PROCESSES, world, 60, body, NULL, NULL);
    }
}

// ---- who ------------------------------------------------------------------------------------

static void who(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    EXPECT(rank_get(group) == pg_rank(group));
    EXPECT(rank_world_size(group) == pg_size(group));
    EXPECT(rank_is_main(group) == (pg_rank(group) == 0));
    EXPECT(rank_synchronize(group, &outcome->error) == 0);
    EXPECT(rank_get(NULL) == 0 && rank_world_size(NULL) == 1 && rank_is_main(NULL));
    EXPECT(rank_synchronize(NULL, &outcome->error) == 0);
}

static void test_who(void **state) {
    (void)state;
    play(who, 1, 3);
}

// ---- blobs ----------------------------------------------------------------------------------

// Rank r gives r * step bytes, so that some give nothing; the last of the sizes is no small one.
static size_t blob_size(int rank, size_t step) {
    return (size_t)rank * step;
}

static unsigned char blob_byte(int rank, size_t i) {
    return (unsigned char)((size_t)rank * 31 + i * 7);
}

static void check_blobs(const RankBlobs *all, int world, size_t step, Outcome *outcome) {
    EXPECT(all->count == world && all->offset[0] == 0);
    for (int r = 0; r < world; r++) {
        EXPECT(all->offset[r + 1] - all->offset[r] == blob_size(r, step));
        for (size_t i = 0; i < blob_size(r, step); i++)
            EXPECT(all->data[all->offset[r] + i] == blob_byte(r, i));
    }
}

static void gather(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const size_t steps[] = {0, 1, 3, 100003};
    int world = pg_size(group), rank = pg_rank(group);
    for (size_t s = 0; s < 4; s++) {
        size_t bytes = blob_size(rank, steps[s]);
        unsigned char *mine = bytes ? memory_zalloc(bytes) : NULL;
        RankBlobs all;
        for (size_t i = 0; i < bytes; i++) mine[i] = blob_byte(rank, i);
        EXPECT(rank_all_gather_blobs(group, mine, bytes, &all, &outcome->error) == 0);
        check_blobs(&all, world, steps[s], outcome);
        rank_blobs_free(&all);
        for (int root = 0; root < world; root++) {
            EXPECT(rank_gather_blobs(group, mine, bytes, root, &all, &outcome->error) == 0);
            if (rank == root) check_blobs(&all, world, steps[s], outcome);
            if (rank != root) EXPECT(all.count == 0 && !all.data && !all.offset);
            rank_blobs_free(&all);
        }
        free(mine);
    }
    RankBlobs none;
    EXPECT(rank_gather_blobs(group, NULL, 0, world, &none, &outcome->error) == -1);
    EXPECT(strstr(outcome->error.message, "there is no rank") != NULL);
}

static void test_gather(void **state) {
    (void)state;
    play(gather, 1, 4);
    RankBlobs all;
    Error err = {0};
    assert_int_equal(rank_gather_blobs(NULL, "abc", 3, 0, &all, &err), 0);
    assert_int_equal(all.count, 1);
    assert_memory_equal(all.data, "abc", 3);
    rank_blobs_free(&all);
    assert_int_equal(rank_all_gather_blobs(NULL, "abc", 3, &all, &err), 0);
    assert_int_equal(all.offset[1], 3);
    rank_blobs_free(&all);
    rank_blobs_free(&all); // twice is fine
}

// ---- named numbers --------------------------------------------------------------------------

static void reduce(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int world = pg_size(group), rank = pg_rank(group);
    double sum = world * (world + 1) / 2.0;
    // Each rank has another order.
    NamedValue values[3] = {{"loss", 0}, {"accuracy", 0}, {"", 0}};
    NamedValue *loss = &values[rank % 3], *accuracy = &values[(rank + 1) % 3];
    NamedValue *empty = &values[(rank + 2) % 3];
    *loss = (NamedValue){"loss", rank + 1};
    *accuracy = (NamedValue){"accuracy", 0.25};
    *empty = (NamedValue){"", -(rank + 1) * 1e100};
    EXPECT(rank_reduce_dict(group, values, 3, false, &outcome->error) == 0);
    EXPECT(loss->value == sum && accuracy->value == 0.25 * world && empty->value == -sum * 1e100);
    loss->value = rank + 1;
    EXPECT(rank_reduce_dict(group, loss, 1, true, &outcome->error) == 0);
    EXPECT(loss->value == sum * (1.0 / world));
    EXPECT(strcmp(loss->name, "loss") == 0);
    EXPECT(rank_reduce_dict(group, NULL, 0, true, &outcome->error) == 0);
}

static void test_reduce_dict(void **state) {
    (void)state;
    play(reduce, 1, 4);
    NamedValue alone = {"x", 3};
    assert_int_equal(rank_reduce_dict(NULL, &alone, 1, true, NULL), 0);
    assert_true(alone.value == 3);
}

static void disagree(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    bool odd = pg_rank(group) == 2;
    Error missing = {0}, more = {0}, twice = {0};
    NamedValue values[3] = {{"a", 1}, {odd ? "c" : "b", 2}, {"d", 3}};
    EXPECT(rank_reduce_dict(group, values, 2, true, &missing) == -1);
    EXPECT(strstr(missing.message, "rank 0 has a value 'b', rank 2 has none") != NULL);
    EXPECT(values[0].value == 1 && values[1].value == 2);
    values[1].name = "b";
    EXPECT(rank_reduce_dict(group, values, odd ? 3 : 2, true, &more) == -1);
    EXPECT(strstr(more.message, "rank 2 has a value 'd', rank 0 has none") != NULL);
    values[2].name = "b";
    EXPECT(rank_reduce_dict(group, values, odd ? 3 : 2, true, &twice) == -1);
    EXPECT(strstr(twice.message, "rank 0 or rank 2 has a name twice") != NULL);
    // The group lives on.
    EXPECT(rank_reduce_dict(group, values, 2, false, &outcome->error) == 0);
    EXPECT(values[0].value == 3 && values[1].value == 6);
}

static void test_reduce_dict_disagreement(void **state) {
    (void)state;
    play(disagree, 3, 3);
}

// ---- seeds ----------------------------------------------------------------------------------

static void seeds(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    uint64_t first = 0, second = 0, theirs[RANKS_MAX];
    EXPECT(rank_shared_seed(group, &first, &outcome->error) == 0);
    EXPECT(rank_shared_seed(group, &second, &outcome->error) == 0);
    EXPECT(first != second);
    EXPECT(pg_run(group, pg_all_gather(&first, theirs, 1, PG_I64), &outcome->error) == 0);
    for (int r = 0; r < pg_size(group); r++) EXPECT(theirs[r] == first);
}

static void test_seeds(void **state) {
    (void)state;
    uint64_t alone = 0;
    play(seeds, 1, 3);
    assert_int_equal(rank_shared_seed(NULL, &alone, NULL), 0);
    for (int r = 0; r < 64; r++) {
        assert_true(rank_own_seed(5, r) == rank_own_seed(5, r));
        assert_true(rank_own_seed(5, r) != rank_own_seed(6, r));
        for (int q = 0; q < r; q++) assert_true(rank_own_seed(5, q) != rank_own_seed(5, r));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who),         cmocka_unit_test(test_gather),
        cmocka_unit_test(test_reduce_dict), cmocka_unit_test(test_reduce_dict_disagreement),
        cmocka_unit_test(test_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
