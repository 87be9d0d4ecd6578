/* test_mpi_hosts.c: backend mpi: which ranks share a host and its memory, which bytes they receive,
 * how they wait, and that a closed group leaves no MPI object. tests/clusters/mpi_faults.sh starts
 * four ranks.
 */
#include "tests/clusters/mpi_between.h"
#include "tests/rigs/mapped_segments.h"
#include "tests/rigs/zeros_behind.h"

static float values[COUNT * WORLD], sums[COUNT];

// ---- hosts --------------------------------------------------------------------------------------

// Ranks of one host share memory if hosts are blocks of rank order of equal size. Only then does
// the backend try to map memory, and it unmaps that test memory again.
static void hosts_are_found_by_their_ranks(void **state) {
    (void)state;
    static const struct Case {
        const char *layout;
        int count, local_size; // number of hosts; of ranks on each
    } CASES[] = {{"aabb", 2, 2}, {"bbaa", 2, 2}, {"aaaa", 1, 4}, {"abcd", 4, 1}, {"abab", 4, 1},
                 {"abba", 4, 1}, {"aaab", 4, 1}, {"abbb", 4, 1}, {"aabc", 4, 1}, {"abcc", 4, 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        Error err = {0};
        setenv("FAKE_LAYOUT", c->layout, 1);
        set_fault(me.rank, "open", 0); // only counts the calls
        ProcessGroup *group = open_first(WORLD, -1);
        fault.name = NULL;
        assert_int_equal(fault.calls, c->local_size > 1 && me.rank % c->local_size > 0);
        const MpiHosts *hosts = &((const PgMpi *)group->state)->hosts;
        assert_int_equal(mapped_segments(), 0);
        assert_int_equal(hosts->blocked, c->local_size > 1);
        assert_true(hosts->count == c->count && hosts->local_size == c->local_size);
        assert_int_equal(hosts->host, me.rank / c->local_size);
        assert_int_equal(hosts->local_rank, me.rank % c->local_size);
        float *shared = pg_shared_alloc(group, COUNT * sizeof *shared, &err);
        if (!shared) fail_msg("%s", err.message);
        assert_int_equal(mapped_segments(), c->local_size > 1);
        for (int k = 0; k < COUNT; k++) shared[k] = (float)(me.rank + k % 7);
        expect_success(group, pg_all_reduce(shared, COUNT, PG_F32, PG_SUM));
        for (int k = 0; k < COUNT; k++) assert_true(shared[k] == (float)(6 + k % 7 * WORLD));
        close_group(group);
        assert_int_equal(mapped_segments(), 0);
    }
    unsetenv("FAKE_LAYOUT");
}

// Each byte that a rank receives from another rank is counted once.
static void bytes_that_are_received(void **state) {
    (void)state;
    enum { BYTES = COUNT * sizeof(float), SLICE = BYTES / WORLD };
    Error err = {0};
    ProcessGroup *group = open_first(WORLD, -1);
    float *shared = pg_shared_alloc(group, BYTES, &err);
    if (!shared) fail_msg("%s", err.message);
    const struct Case {
        Collective collective;
        size_t at_root, elsewhere;
    } CASES[] = {
        {pg_broadcast(sums, COUNT, PG_F32, 1), 0, BYTES},
        {pg_all_gather(sums, values, COUNT, PG_F32), 3 * BYTES, 3 * BYTES},
        {pg_gather(sums, values, COUNT, PG_F32, 2), 3 * BYTES, 0},
        {pg_scatter(values, sums, COUNT, PG_F32, 3), 0, BYTES},
        {pg_reduce_scatter(values, sums, COUNT, PG_F32, PG_MAX), 3 * BYTES, 3 * BYTES},
        {pg_all_reduce(sums, COUNT, PG_F32, PG_SUM), 6 * SLICE, 6 * SLICE},
        {pg_reduce(sums, COUNT, PG_F32, PG_SUM, 1), 6 * SLICE, 3 * SLICE},
        {pg_all_reduce(shared, COUNT, PG_F32, PG_SUM), BYTES / 2, BYTES / 2},
        {pg_barrier(), 0, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const uint64_t before = pg_moved_bytes(group);
        expect_success(group, CASES[i].collective);
        const bool at_root = me.rank == CASES[i].collective.root;
        assert_int_equal(pg_moved_bytes(group) - before,
                         at_root ? CASES[i].at_root : CASES[i].elsewhere);
    }
    close_group(group);
}

// Waits sleep between two polls: in a barrier for an absent rank, and in a chain for a chunk.
static void waits_leave_the_processor(void **state) {
    (void)state;
    Error err = {0};
    ProcessGroup *group = open_first(WORLD, -1);
    float *shared = pg_shared_alloc(group, COUNT * sizeof *shared, &err);
    seen.naps = seen.chain_naps = 0;
    if (me.rank == 3) usleep(50000);
    expect_success(group, pg_barrier());
    if (me.rank != 3) assert_true(seen.naps > 0);
    set_fault(3, "Isend", WORLD); // after the headers, before the chunks
    fault.slow = true;
    expect_success(group, pg_all_reduce(shared, COUNT, PG_F32, PG_SUM));
    if (me.rank == 1) assert_true(seen.chain_naps > 0);
    fault.name = NULL;
    close_group(group);
}

// Only a broken group keeps its communicator. Every watched call has returned and had the group's
// timeout.
static void nothing_is_left_of_a_group(void **state) {
    (void)state;
    const int comms = comms_left(), groups = seen.groups;
    ProcessGroup *group = open_first(WORLD, -1);
    Error err = {0};
    ProcessGroup *pair = pg_new_subgroup(group, (int[]){0, 2}, 2, &err);
    assert_int_equal(comms_left(), comms + 1 + (me.rank % 2 == 0));
    assert_int_equal(seen.groups, groups);
    pg_close(pair);
    close_group(group);
    assert_int_equal(comms_left(), comms);
    assert_int_equal(seen.watches, 0);
    assert_true(seen.least_s == LONG_S && seen.most_s == LONG_S);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_found_by_their_ranks),
        cmocka_unit_test(bytes_that_are_received),
        cmocka_unit_test(waits_leave_the_processor),
        cmocka_unit_test(nothing_is_left_of_a_group),
    };
    Error err = {0};
    setenv("CMOCKA_TEST_ABORT", "1", 1); // a failed rank ends the job, as the others wait for it
    must_do(init_from_env(&me, false, &err), &err);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, LONG_S, &err), &err);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
