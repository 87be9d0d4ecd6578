/* test_sampler.c: permutations and samplers compared with PyTorch's; and the properties that
 * training relies on: each sample occurs once, all ranks have the same number of steps, blocked
 * samplers take chunks of the global batch.
 *
 * The vectors were printed by torch.randperm and torch.utils.data.DistributedSampler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/data/randperm.h"
#include "ddp/distributed_sampler.h"

enum { LONGEST = 16 };

static void expect_order(size_t n, uint64_t seed, const size_t *want) {
    size_t order[LONGEST];
    randperm(n, seed, order);
    for (size_t i = 0; i < n; i++) assert_int_equal(order[i], want[i]);
}

static void test_randperm_vectors(void **state) {
    (void)state;
    expect_order(10, 0, (size_t[]){4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    expect_order(10, 1, (size_t[]){5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
    expect_order(5, 0, (size_t[]){4, 0, 1, 3, 2});
    expect_order(7, 42, (size_t[]){1, 6, 3, 5, 4, 0, 2});
    expect_order(13, 3, (size_t[]){2, 9, 1, 10, 5, 4, 8, 12, 0, 7, 11, 6, 3});
    // Only the low 32 bits of the seed count.
    expect_order(10, (uint64_t)7 << 32 | 1, (size_t[]){5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
    expect_order(1, 5, (size_t[]){0});
}

static void test_randperm_is_a_permutation(void **state) {
    (void)state;
    enum { N = 2003 }; // several refills of the generator's state
    size_t order[N];
    bool seen[N] = {false};
    randperm(N, 9, order);
    size_t moved = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(order[i] < N);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        moved += order[i] != i;
    }
    assert_true(moved > N / 2);
    // torch.randperm(2003) with seed 9: the sum weighted by position, and the first and last
    // values.
    size_t weighted = 0;
    for (size_t i = 0; i < N; i++) weighted += i * order[i];
    assert_int_equal(weighted, 1994972502);
    assert_int_equal(order[0], 1938);
    assert_int_equal(order[N - 1], 1645);
    randperm(0, 1, NULL);
}

// A row of the table: the indices of all ranks, concatenated.
typedef struct Vector {
    size_t samples;
    int world;
    bool shuffle, drop_last;
    uint64_t seed;
    size_t epoch, per_rank;
    size_t want[LONGEST];
} Vector;

static const Vector VECTORS[] = {
    {10, 4, false, false, 0, 0, 3, {0, 4, 8, 1, 5, 9, 2, 6, 0, 3, 7, 1}},
    {10, 4, false, true, 0, 0, 2, {0, 4, 1, 5, 2, 6, 3, 7}},
    {3, 8, false, false, 0, 0, 1, {0, 1, 2, 0, 1, 2, 0, 1}},
    {10, 4, true, false, 0, 0, 3, {4, 3, 6, 1, 9, 2, 7, 0, 4, 5, 8, 1}},
    {10, 4, true, false, 0, 1, 3, {5, 0, 7, 6, 8, 4, 1, 9, 5, 2, 3, 6}},
    {10, 4, true, false, 1, 0, 3, {5, 0, 7, 6, 8, 4, 1, 9, 5, 2, 3, 6}},
    {10, 3, true, true, 0, 0, 3, {4, 5, 0, 1, 3, 8, 7, 9, 6}},
};

static void row_67_distributed_vectors(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof VECTORS / sizeof *VECTORS; v++) {
        const Vector *c = &VECTORS[v];
        for (int rank = 0; rank < c->world; rank++) {
            Error err = {0};
            Sampler *s = distributed_sampler(c->samples, 2 * (size_t)c->world, c->world, rank,
                                             c->shuffle, c->drop_last, c->seed, &err);
            assert_non_null(s);
            sampler_set_epoch(s, c->epoch);
            assert_int_equal(s->batch_count, (c->per_rank + 1) / 2);
            assert_int_equal(s->start[s->batch_count], c->per_rank);
            const size_t *want = c->want + (size_t)rank * c->per_rank;
            for (size_t i = 0; i < c->per_rank; i++) assert_int_equal(s->indices[i], want[i]);
            sampler_close(s);
        }
    }
}

// Counts how often each sample occurs over all ranks, and checks that ranks agree on the number of
// batches and on `global`. make(world, rank) creates a rank's sampler.
typedef Sampler *(*MakeSampler)(size_t samples, size_t batch, int world, int rank);

static size_t *count_all_ranks(MakeSampler make, size_t samples, size_t batch, int world,
                               size_t epoch) {
    size_t *seen = memory_zalloc(samples * sizeof *seen);
    size_t global[512] = {0}, batches = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int rank = 0; rank < world; rank++) {
            Sampler *s = make(samples, batch, world, rank);
            sampler_set_epoch(s, epoch);
            if (s->batch_count > batches) batches = s->batch_count;
            assert_true(s->batch_count < 512);
            assert_int_equal(s->start[0], 0);
            for (size_t i = 0; i < s->batch_count; i++) {
                if (pass == 0) global[i] += s->start[i + 1] - s->start[i];
                if (pass == 1) assert_int_equal(s->global[i], global[i]);
                for (size_t k = s->start[i]; pass == 0 && k < s->start[i + 1]; k++)
                    seen[s->indices[k]]++;
            }
            sampler_close(s);
        }
    }
    size_t sum = 0, want = 0;
    for (size_t i = 0; i < batches; i++) sum += global[i];
    for (size_t i = 0; i < samples; i++) want += seen[i];
    assert_int_equal(sum, want);
    return seen;
}

static Sampler *make_blocked(size_t samples, size_t batch, int world, int rank) {
    return sampler_blocked(samples, batch, world, rank, true, false, 3, NULL);
}

static Sampler *make_padded(size_t samples, size_t batch, int world, int rank) {
    return distributed_sampler(samples, batch * (size_t)world, world, rank, true, false, 3, NULL);
}

static Sampler *make_dropped(size_t samples, size_t batch, int world, int rank) {
    return distributed_sampler(samples, batch * (size_t)world, world, rank, true, true, 3, NULL);
}

static const size_t SIZES[] = {8, 9, 31, 64, 101, 297};

static void expect_each(MakeSampler make, size_t batch, int world, size_t least, size_t most) {
    for (size_t n = 0; n < sizeof SIZES / sizeof *SIZES; n++) {
        size_t *seen = count_all_ranks(make, SIZES[n], batch, world, 4);
        for (size_t i = 0; i < SIZES[n]; i++) assert_in_range(seen[i], least, most);
        free(seen);
    }
}

static void row_68_ranks_together_see_everything(void **state) {
    (void)state;
    for (int world = 1; world <= 8; world++) {
        for (size_t batch = 1; batch <= 17; batch += 4) {
            expect_each(make_blocked, batch, world, 1, 1);
            expect_each(make_padded, batch, world, 1, 2);
            expect_each(make_dropped, batch, world, 0, 1);
            expect_each(sampler_evaluation, batch, world, 1, 1);
        }
    }
}

static void row_67_padding_is_the_orders_beginning(void **state) {
    (void)state;
    size_t *seen = count_all_ranks(make_padded, 101, 8, 4, 0);
    size_t order[101], twice = 0;
    randperm(101, 3, order);
    for (size_t i = 0; i < 101; i++) twice += seen[i] == 2;
    assert_int_equal(twice, 3); // 4 x 26 - 101
    for (size_t i = 0; i < 3; i++) assert_int_equal(seen[order[i]], 2);
    free(seen);
}

// Every rank gets ceil(N / R) samples; with drop_last ceil((N - R) / R), if R does not divide N;
// also if N < R. drop_last drops exactly N mod R samples.
static void row_67_every_rank_has_as_many(void **state) {
    (void)state;
    for (size_t world = 1; world <= 8; world++) {
        const size_t sizes[] = {100 + world + 1, 1, 2, 3, world, world + 1, 2 * world - 1};
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            size_t samples = sizes[i / 2], total = 0, share = samples / world;
            bool drop = i % 2;
            if (!drop) share += samples % world != 0;
            if (share == 0) continue; // an error, tested by row_68_errors
            for (size_t rank = 0; rank < world; rank++) {
                Sampler *s = distributed_sampler(samples, 2 * world, (int)world, (int)rank, true,
                                                 drop, 3, NULL);
                assert_int_equal(s->start[s->batch_count], share);
                total += s->start[s->batch_count];
                sampler_close(s);
            }
            size_t left = samples % world;
            assert_int_equal(total, drop ? samples - left : samples + (left ? world - left : 0));
        }
    }
}

// PyTorch's example: 1001 samples, 4 ranks with batches of 32: 8 steps, the last of 4 x 27.
static void test_step_counts(void **state) {
    (void)state;
    Sampler *ddp = distributed_sampler(1001, 128, 4, 1, true, false, 0, NULL);
    Sampler *dp = sampler_whole(1001, 128, true, false, 0, NULL);
    assert_int_equal(ddp->batch_count, 8);
    assert_int_equal(ddp->global[7], 108);
    assert_int_equal(ddp->start[8] - ddp->start[7], 27);
    assert_int_equal(dp->batch_count, 8);
    assert_int_equal(dp->global[7], 105);
    assert_int_equal(dp->start[8], 1001);
    sampler_close(ddp);
    sampler_close(dp);
}

static void expect_chunk(const Sampler *whole, const Sampler *blocked) {
    assert_int_equal(whole->batch_count, blocked->batch_count);
    for (size_t i = 0; i < whole->batch_count; i++) {
        size_t begin, end;
        assert_int_equal(whole->global[i], blocked->global[i]);
        chunk_bounds(whole->global[i], (size_t)blocked->world, (size_t)blocked->rank, &begin, &end);
        assert_int_equal(blocked->start[i + 1] - blocked->start[i], end - begin);
        for (size_t k = begin; k < end; k++)
            assert_int_equal(blocked->indices[blocked->start[i] + k - begin],
                             whole->indices[whole->start[i] + k]);
    }
}

static void test_blocked_takes_chunks_of_whole(void **state) {
    (void)state;
    for (int world = 1; world <= 8; world++) {
        for (int drop = 0; drop < 2; drop++) {
            Sampler *whole = sampler_whole(101, 12, true, drop, 7, NULL);
            sampler_set_epoch(whole, 5);
            for (int rank = 0; rank < world; rank++) {
                Sampler *blocked = sampler_blocked(101, 12, world, rank, true, drop, 7, NULL);
                sampler_set_epoch(blocked, 2); // an earlier epoch must not matter
                sampler_set_epoch(blocked, 5);
                expect_chunk(whole, blocked);
                sampler_close(blocked);
            }
            sampler_close(whole);
        }
    }
}

static void test_whole_is_the_permutation(void **state) {
    (void)state;
    Sampler *s = sampler_whole(10, 4, true, false, 0, NULL);
    sampler_set_epoch(s, 1);
    size_t want[10];
    randperm(10, 1, want);
    assert_memory_equal(s->indices, want, sizeof want);
    assert_int_equal(s->batch_count, 3);
    assert_int_equal(s->start[3] - s->start[2], 2);
    sampler_close(s);

    s = sampler_whole(10, 4, false, true, 0, NULL);
    assert_int_equal(s->batch_count, 2);
    for (size_t i = 0; i < 8; i++) assert_int_equal(s->indices[i], i);
    sampler_close(s);

    s = sampler_whole(10, SIZE_MAX, true, false, 0, NULL); // one short batch
    assert_int_equal(s->batch_count, 1);
    assert_int_equal(s->global[0], 10);
    sampler_close(s);
}

// The generator's seed is seed + epoch, as in PyTorch: epoch 3 of seed 1 equals epoch 1 of seed 3
// and epoch 0 of seed 4.
static void row_67_epochs_add_to_the_seed(void **state) {
    (void)state;
    static const uint64_t seeds[] = {1, 3, 6, 41, UINT32_MAX, UINT64_MAX};
    enum { N = 100 };
    for (size_t k = 0; k < sizeof seeds / sizeof *seeds; k++) {
        Sampler *whole = sampler_whole(N, 16, true, false, seeds[k], NULL);
        Sampler *rank = distributed_sampler(N, 16, 2, 1, true, false, seeds[k], NULL);
        for (size_t epoch = 0; epoch < 6; epoch++) {
            size_t want[N];
            randperm(N, seeds[k] + epoch, want);
            sampler_set_epoch(whole, epoch);
            sampler_set_epoch(rank, epoch);
            assert_memory_equal(whole->indices, want, sizeof want);
            for (size_t i = 0; i < N / 2; i++) assert_int_equal(rank->indices[i], want[2 * i + 1]);
        }
        sampler_close(whole);
        sampler_close(rank);
    }
}

static void test_chunk_bounds(void **state) {
    (void)state;
    // Columns: count, chunks, the sizes that torch.chunk returns.
    static const size_t table[][10] = {
        {10, 8, 2, 2, 2, 2, 2, 0, 0, 0},
        {9, 8, 2, 2, 2, 2, 1, 0, 0, 0},
        {17, 8, 3, 3, 3, 3, 3, 2, 0, 0},
        {25, 8, 4, 4, 4, 4, 4, 4, 1, 0},
        {7, 4, 2, 2, 2, 1},
        {5, 4, 2, 2, 1, 0},
        {3, 4, 1, 1, 1, 0},
        {0, 4, 0, 0, 0, 0},
    };
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        size_t at = 0;
        for (size_t i = 0; i < table[t][1]; i++) {
            size_t begin, end;
            chunk_bounds(table[t][0], table[t][1], i, &begin, &end);
            assert_int_equal(begin, at);
            assert_int_equal(end - begin, table[t][2 + i]);
            at = end;
        }
        assert_int_equal(at, table[t][0]);
    }
}

static void test_evaluation_parts(void **state) {
    (void)state;
    Sampler *last = sampler_evaluation(297, 64, 4, 3);
    assert_int_equal(last->batch_count, 2);
    assert_int_equal(last->indices[0], 225);
    assert_int_equal(last->start[2], 72);
    sampler_close(last);
    Sampler *none = sampler_evaluation(5, 64, 4, 3); // shares 2, 2, 1 and 0
    assert_int_equal(none->batch_count, 0);
    sampler_close(none);
    Sampler *all = sampler_evaluation(5, SIZE_MAX, 4, 0);
    assert_int_equal(all->batch_count, 1);
    assert_int_equal(all->global[0], 5);
    sampler_close(all);
    all = sampler_evaluation(5, SIZE_MAX / 2 + 1, 2, 1); // times the world it would be 0
    assert_int_equal(all->batch_count, 1);
    assert_int_equal(all->global[0], 5);
    assert_int_equal(all->start[1], 2);
    sampler_close(all);
    Sampler *empty = sampler_evaluation(0, 64, 1, 0);
    assert_int_equal(empty->batch_count, 0);
    sampler_close(empty);
    sampler_close(NULL);
}

static void expect_error(Sampler *sampler, const Error *err, const char *fragment) {
    assert_null(sampler);
    assert_int_equal(err->status, STATUS_USAGE);
    if (!strstr(err->message, fragment)) fail_msg("'%s' lacks '%s'", err->message, fragment);
}

static void row_68_errors(void **state) {
    (void)state;
    Error e = {0};
    expect_error(sampler_whole(10, 0, true, false, 0, &e), &e,
                 "--global-batch 0: a batch needs at least one sample");
    e = (Error){0};
    expect_error(sampler_whole(0, 4, true, false, 0, &e), &e, "the data set is empty");
    e = (Error){0};
    expect_error(sampler_whole(10, 11, true, true, 0, &e), &e, "no batch is left");
    e = (Error){0};
    expect_error(sampler_whole(RANDPERM_LIMIT, 1, true, true, 0, &e), &e, "too many");
    e = (Error){0};
    expect_error(sampler_blocked(10, 4, 2, 2, true, false, 0, &e), &e,
                 "Invalid rank 2, rank should be in the interval [0, 1]");
    e = (Error){0};
    expect_error(distributed_sampler(10, 4, 4, -1, true, false, 0, &e), &e,
                 "Invalid rank -1, rank should be in the interval [0, 3]");
    e = (Error){0};
    expect_error(distributed_sampler(10, 4, 0, 0, true, false, 0, &e), &e, "world size 0");
    e = (Error){0};
    expect_error(distributed_sampler(100, 50, 4, 0, true, false, 0, &e), &e,
                 "--global-batch 50 is not divisible by the world size 4: ranks would get unequal "
                 "batches; use a multiple of 4 or --sampler blocked");
    e = (Error){0};
    expect_error(distributed_sampler(3, 8, 8, 0, true, true, 0, &e), &e, "no batch is left");
}

// Dropping the incomplete batch leaves the same global batches with one device and with all
// samplers of several ranks.
static void incomplete_batches_are_dropped_alike(void **state) {
    (void)state;
    enum { N = 1000, B = 64, WORLD = 4 };
    Error err = {0};
    Sampler *whole = sampler_whole(N, B, true, false, 3, &err);
    assert_int_equal(whole->batch_count, 16);
    assert_int_equal(sampler_drop_incomplete(whole, &err), 0);
    assert_int_equal(whole->batch_count, N / B);
    assert_int_equal(sampler_drop_incomplete(whole, &err), 0); // a second call does nothing
    assert_int_equal(whole->batch_count, N / B);
    for (size_t i = 0; i < N / B; i++) {
        size_t sum = 0, shares = 0;
        for (size_t k = whole->start[i]; k < whole->start[i + 1]; k++) sum += whole->indices[k];
        for (int r = 0; r < WORLD; r++) {
            Sampler *rank = distributed_sampler(N, B, WORLD, r, true, true, 3, &err);
            assert_int_equal(sampler_drop_incomplete(rank, &err), 0);
            assert_int_equal(rank->batch_count, N / B);
            for (size_t k = rank->start[i]; k < rank->start[i + 1]; k++) shares += rank->indices[k];
            sampler_close(rank);
        }
        assert_int_equal(shares, sum);
    }
    sampler_close(whole);
    Sampler *one = sampler_whole(40, 64, true, false, 3, &err);
    assert_int_equal(sampler_drop_incomplete(one, &err), -1);
    assert_string_equal(err.message, "no batch is left: the only one has 40 of 64 samples");
    sampler_close(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_randperm_vectors),
        cmocka_unit_test(test_randperm_is_a_permutation),
        cmocka_unit_test(row_67_distributed_vectors),
        cmocka_unit_test(row_68_ranks_together_see_everything),
        cmocka_unit_test(row_67_padding_is_the_orders_beginning),
        cmocka_unit_test(row_67_every_rank_has_as_many),
        cmocka_unit_test(test_step_counts),
        cmocka_unit_test(test_blocked_takes_chunks_of_whole),
        cmocka_unit_test(test_whole_is_the_permutation),
        cmocka_unit_test(row_67_epochs_add_to_the_seed),
        cmocka_unit_test(test_chunk_bounds),
        cmocka_unit_test(test_evaluation_parts),
        cmocka_unit_test(incomplete_batches_are_dropped_alike),
        cmocka_unit_test(row_68_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
