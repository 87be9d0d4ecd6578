/* test_mpi_faults.c: the errors of ranks of backend mpi when a rank is absent, disagrees or aborts,
 * and when an MPI function fails. A rank reports its own error or, where another rank failed first,
 * that rank's error and then the ranks for which it waits itself. tests/clusters/mpi_faults.sh
 * starts four ranks, two on each of two simulated hosts.
 */
#include "tests/clusters/mpi_between.h"

#include <limits.h>
#include <sys/mman.h>

// ---- absent ranks -------------------------------------------------------------------------------

// Only rank 0 calls. Its error names the absent ranks and the last collective that they began; an
// absent rank that calls later gets the same error.
static void a_rank_that_is_away_is_named(void **state) {
    (void)state;
    static float x[COUNT];
    const struct Case {
        int world;
        Collective before, call; // before: run by all ranks, unless it is a send
        const char *words;
    } CASES[] = {
        {2, pg_send(x, 0, PG_F32, 0), pg_barrier(),
         "collective 1 barrier: rank 1 did not arrive within 0.3 s; rank 1 has begun no "
         "collective"},
        {2, pg_broadcast(x, 4, PG_F32, 0), pg_all_reduce(x, 5, PG_F32, PG_SUM),
         "collective 2 all_reduce(F32, 5, sum): rank 1 did not arrive within 0.3 s; rank 1 last "
         "began 1 broadcast"},
        {4, pg_barrier(), pg_barrier(),
         "collective 2 barrier: rank 1, 2, 3 did not arrive within 0.3 s; rank 1 last began 1 "
         "barrier, rank 2 last began 1 barrier, rank 3 last began 1 barrier"},
        {2, pg_barrier(), pg_send(x, COUNT, PG_F32, 1),
         "send(F32, 65536, to rank 1): rank 1 did not arrive within 0.3 s; rank 1 last began 1 b"},
        {4, pg_barrier(), pg_recv(x, 1, PG_F32, 2),
         "recv(F32, 1, from rank 2): rank 2 did not arrive within 0.3 s; rank 2 last began 1 b"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        ProcessGroup *group = open_first(c->world, 0);
        if (group && c->before.kind != PG_SEND) expect_success(group, c->before);
        if (me.rank == 0) expect_failure(group, c->call, c->words);
        all_are_here();
        if (group && me.rank > 0) expect_failure(group, pg_recv(x, 2, PG_F64, 0), c->words);
        close_group(group);
        all_are_here();
    }
}

static void a_monitored_barrier_names_the_first_or_all(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        ProcessGroup *group = open_first(WORLD, -1);
        Error err = {0};
        if (me.rank == 0) {
            assert_int_equal(pg_monitored_barrier(group, PATIENCE_S, all, &err), -1);
            check_words(group, &err,
                        all ? "Ranks 1, 2, 3 failed to pass monitoredBarrier in 300 ms; rank 1 has"
                            : "Rank 1 failed to pass monitoredBarrier in 300 ms; rank 1 has");
            if (!all) assert_null(strstr(err.message, "rank 2"));
        }
        all_are_here();
        close_group(group);
    }
}

// Rank 1 has arrived at the collective and blocks before it sends its data.
static void a_rank_that_stops_has_begun_it(void **state) {
    (void)state;
    float mine = 1, both[2];
    ProcessGroup *group = open_first(2, 0);
    if (me.rank == 0)
        expect_failure(group, pg_all_gather(&mine, both, 1, PG_F32),
                       "collective 1 all_gather(F32, 1): rank 1 did not arrive within 0.3 s; "
                       "rank 1 had begun it");
    set_fault(1, "Isend", 2);
    fault.stops = 1;
    Error err = {0};
    if (me.rank == 1)
        (void)pg_run(group, pg_all_gather(&mine, both, 1, PG_F32), &err); // blocks
    else
        all_are_here();
    fault.name = NULL;
    close_group(group);
    all_are_here();
}

static void a_subgroup_names_both_numbers(void **state) {
    (void)state;
    Error err = {0};
    ProcessGroup *world = open_first(WORLD, -1);
    ProcessGroup *pair = pg_new_subgroup(world, (int[]){1, 3}, 2, &err);
    assert_int_equal(err.status, STATUS_OK);
    if (me.rank == 1) pair->timeout_s = PATIENCE_S;
    if (me.rank == 1)
        expect_failure(pair, pg_barrier(),
                       "rank 1 (global 3) did not arrive within 0.3 s; rank 1 "
                       "(global 3) has begun no collective");
    all_are_here();
    if (me.rank == 3)
        expect_failure(pair, pg_recv(&err, 1, PG_U8, 0), "rank 1 (global 3) did not arrive");
    close_group(pair);
    close_group(world);
    all_are_here();
}

// ---- ranks that disagree or abort ---------------------------------------------------------------

static void ranks_that_disagree(void **state) {
    (void)state;
    static float x[8];
    for (int odd = 0; odd < WORLD; odd++) {
        char words[200];
        ProcessGroup *group = open_first(WORLD, -1);
        snprintf(words, sizeof words,
                 "collective 1: ranks disagree: rank 0 runs all_reduce(F32, %d, sum), rank %d runs "
                 "all_reduce(F32, %d, sum); they differ in size",
                 odd ? 7 : 8, odd ? odd : 1, odd ? 8 : 7);
        expect_failure(group, pg_all_reduce(x, me.rank == odd ? 8 : 7, PG_F32, PG_SUM), words);
        close_group(group);

        group = open_first(WORLD, -1);
        Error err = {0};
        if (me.rank == odd) assert_int_equal(pg_use_fast_sums(group, &err), 0);
        snprintf(words, sizeof words, "rank 0 runs with%s fast sums, and rank %d with%s",
                 odd ? "out" : "", odd ? odd : 1, odd ? " them" : "out");
        expect_failure(group, pg_all_reduce(x, 8, PG_F32, PG_SUM), words);
        close_group(group);
        all_are_here();
    }
}

static void a_message_of_another_size(void **state) {
    (void)state;
    static float x[8];
    ProcessGroup *group = open_first(WORLD, -1);
    const char *words =
        "rank 0 runs send(F32, 8, to rank 1), rank 1 runs recv(F32, 7, from rank 0)";
    if (me.rank == 0) expect_success(group, pg_send(x, 8, PG_F32, 1));
    expect_failure(
        group, me.rank == 1 ? pg_recv(x, 7, PG_F32, 0) : pg_recv(x, 1, PG_F32, 1 + (me.rank == 1)),
        words);
    close_group(group);
    all_are_here();
}

// The requests of an abort's messages are freed if MPI has completed them, and only then.
static struct {
    size_t bytes; // the size of the allocation under watch, the last of this size; 0: none
    void *memory;
    int frees;
} told;

void *__real_memory_zalloc(size_t bytes);
void *__wrap_memory_zalloc(size_t bytes);
void __real_free(void *memory);
void __wrap_free(void *memory);

void *__wrap_memory_zalloc(size_t bytes) {
    void *memory = __real_memory_zalloc(bytes);
    if (told.bytes && bytes == told.bytes) told.memory = memory;
    return memory;
}

void __wrap_free(void *memory) {
    told.frees += memory && memory == told.memory;
    __real_free(memory);
}

// Rank 0 of `world` ranks aborts. Returns the number of frees of the requests.
static int abort_first(ProcessGroup *group, int world, const Error *own) {
    told.bytes = (size_t)world * sizeof(MPI_Request);
    told.memory = NULL;
    told.frees = 0;
    assert_true(pg_abort(group, own));
    assert_non_null(told.memory);
    told.bytes = 0;
    told.memory = NULL;
    return told.frees;
}

// Rank 0 aborts. Rank 1 reports that error, then the ranks for which it waits, in ascending order.
// A failed MPI call while it receives the error does not change the report.
static void a_rank_that_gives_up_is_heard(void **state) {
    (void)state;
    static const char *const DEAF[] = {NULL, "Iprobe", "Recv"};
    for (int i = 0; i < 3; i++) {
        ProcessGroup *group = open_first(3, -1);
        Error own = {0}, late = {0};
        error_set(&own, STATUS_FAILED, "the loss is nan");
        error_set(&late, STATUS_FAILED, "another error");
        set_fault(0, "Isend", 0); // only counts the calls
        if (me.rank == 0) assert_int_equal(abort_first(group, 3, &own), 1);
        if (me.rank == 0) assert_int_equal(fault.calls, 2); // no message to itself
        if (me.rank == 0) assert_int_equal(seen.awaited, 2);
        set_fault(1, DEAF[i], 1);
        if (me.rank == 1)
            expect_failure(group, pg_barrier(),
                           "rank 0: the loss is nan. Rank 1 itself waits for rank 0, 2");
        if (me.rank == 1 && DEAF[i]) assert_true(fault.calls > 0);
        fault.name = NULL;
        if (me.rank < 2) assert_false(pg_abort(group, &late));
        all_are_here();
        if (group && me.rank == 2)
            expect_failure(group, pg_recv(&own, 1, PG_U8, 0), "rank 0: the loss is nan");
        close_group(group);
        all_are_here();
    }
}

// Rank 1 polls MPI before rank 0 arrives. Before it checks for errors, rank 0 completes the barrier
// and then aborts, or the deadline passes: the barrier is complete on rank 1, too.
static void a_complete_collective_outlives_an_abort(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        ProcessGroup *group = open_first(2, late ? 1 : -1);
        Error own = {0};
        error_set(&own, STATUS_FAILED, "the loss is nan");
        set_fault(1, "Iprobe", 1);
        fault.stops = 2;
        if (me.rank == 1) {
            expect_success(group, pg_barrier());
        } else {
            all_are_here(); // rank 1 has polled
            if (me.rank == 0) expect_success(group, pg_barrier());
            if (me.rank == 0 && late) usleep(PATIENCE_S * 1e6);
            if (me.rank == 0 && !late) assert_true(pg_abort(group, &own));
            all_are_here();
        }
        fault.name = NULL;
        if (me.rank == 1 && !late) expect_failure(group, pg_barrier(), "rank 0: the loss is nan");
        close_group(group);
        all_are_here();
    }
}

// Rank 0's message about its abort fails for rank 1; the other ranks receive it.
static void a_rank_that_cannot_be_told(void **state) {
    (void)state;
    static const char *const FAILS[] = {"Isend", "Testall"};
    for (int i = 0; i < 2; i++) {
        ProcessGroup *group = open_first(3, -1);
        Error own = {0};
        error_set(&own, STATUS_FAILED, "the loss is nan");
        set_fault(0, FAILS[i], 1);
        if (me.rank == 0) assert_int_equal(abort_first(group, 3, &own), i == 0);
        if (me.rank == 0) assert_true(fault.calls > 0);
        fault.name = NULL;
        all_are_here();
        if (group && me.rank == 2)
            expect_failure(group, pg_recv(&own, 1, PG_U8, 0), "rank 0: the loss is nan");
        all_are_here();
        if (me.rank == 1 && i == 0) assert_int_equal(pg_check_sound(group, NULL), 0);
        if (me.rank == 1) pg_abort(group, &own);
        all_are_here();
        close_group(group);
        all_are_here();
    }
}

// ---- functions of MPI that fail -----------------------------------------------------------------

// Runs the collective with a failure in call `at` of this function on rank `rank`. The other ranks
// end with that rank's error, or with the result, if they needed no more data from it. Returns
// whether that rank reached the call.
static bool fails_at(int rank, const char *name, int at, Collective (*make)(ProcessGroup *group)) {
    char words[64];
    Error err = {0};
    ProcessGroup *group = open_first(WORLD, -1);
    const Collective collective = make(group);
    all_are_here();
    set_fault(rank, name, at);
    const int status = pg_run(group, collective, &err);
    int happened = fault.calls >= at;
    fault.name = NULL;
    PMPI_Bcast(&happened, 1, MPI_INT, rank, MPI_COMM_WORLD);
    snprintf(words, sizeof words, "MPI_%s: ", name);
    if (me.rank == rank) assert_int_equal(status, happened ? -1 : 0);
    if (status != 0) check_words(group, &err, words);
    close_group(group);
    all_are_here();
    return happened;
}

static float values[COUNT * WORLD], sums[COUNT];

static Collective sum_apart(ProcessGroup *group) {
    (void)group;
    return pg_all_reduce(values, COUNT, PG_F32, PG_SUM);
}
static Collective sum_on_hosts(ProcessGroup *group) {
    Error err = {0};
    float *shared = pg_shared_alloc(group, COUNT * sizeof *shared, &err);
    if (!shared) fail_msg("%s", err.message);
    return pg_all_reduce(shared, COUNT, PG_F32, PG_SUM);
}
static Collective sum_pieces(ProcessGroup *group) {
    (void)group;
    return pg_reduce_scatter(values, sums, COUNT, PG_F32, PG_SUM);
}
static Collective sum_fast(ProcessGroup *group) {
    Error err = {0};
    assert_int_equal(pg_use_fast_sums(group, &err), 0);
    return sum_apart(group);
}

static void every_failure_of_mpi_ends_the_call(void **state) {
    (void)state;
    static const struct Way {
        Collective (*make)(ProcessGroup *group);
        int rank;
    } WAYS[] = {{sum_apart, 3}, {sum_pieces, 0}, {sum_on_hosts, 1}, {sum_on_hosts, 2}};
    for (int w = 0; w < 4; w++) {
        const struct Way *way = &WAYS[w];
        int sends = 1, receives = 1;
        while (fails_at(way->rank, "Isend", sends, way->make)) sends++;
        while (fails_at(way->rank, "Irecv", receives, way->make)) receives++;
        assert_true(sends > WORLD && receives > WORLD); // of headers and of data
        assert_true(fails_at(way->rank, "Testall", 1, way->make));
    }
    assert_true(fails_at(1, "Test", 1, sum_on_hosts));
    assert_true(fails_at(1, "Iallreduce", 1, sum_fast));
}

// Only sums of float32 and float64 use MPI_Iallreduce: MPI adds like the backend, except for the
// order.
static void fast_sums_are_those_that_mpi_has(void **state) {
    (void)state;
    static const struct Case {
        PgType type;
        ReduceOp op;
        int calls;
    } CASES[] = {{PG_F32, PG_SUM, 1}, {PG_F64, PG_AVG, 1}, {PG_F32, PG_MAX, 0}, {PG_F64, PG_MIN, 0},
                 {PG_I32, PG_SUM, 0}, {PG_F16, PG_SUM, 0}, {PG_BF16, PG_SUM, 0}};
    Error err = {0};
    ProcessGroup *group = open_first(WORLD, -1);
    assert_int_equal(pg_use_fast_sums(group, &err), 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const uint64_t before = pg_moved_bytes(group);
        set_fault(me.rank, "Iallreduce", 0); // only counts the calls
        expect_success(group, pg_all_reduce(values, 1000, CASES[i].type, CASES[i].op));
        assert_int_equal(fault.calls, CASES[i].calls);
        if (CASES[i].calls) // the bytes of a ring
            assert_int_equal(pg_moved_bytes(group) - before,
                             2 * 1000 * pg_type_bytes(CASES[i].type) * (WORLD - 1) / WORLD);
    }
    fault.name = NULL;
    close_group(group);
}

// A message of more than 8 MiB is sent and received in parts.
static void messages_of_many_bytes(void **state) {
    (void)state;
    enum { MOST = 8 << 20 };
    static unsigned char bytes[2 * MOST];
    ProcessGroup *group = open_first(2, -1);
    for (int more = 0; group && more < 2; more++) {
        const size_t count = MOST + (size_t)more;
        memset(bytes, me.rank == 0 ? 7 : 0, sizeof bytes);
        set_fault(me.rank, me.rank == 0 ? "Isend" : "Irecv", 0); // only counts the calls
        expect_success(group, me.rank == 0 ? pg_send(bytes, count, PG_U8, 1)
                                           : pg_recv(bytes, count, PG_U8, 0));
        assert_int_equal(fault.calls, 2 + more); // the header, and its parts
        assert_true(bytes[0] == 7 && bytes[count - 1] == 7 && bytes[count] == 7 * (me.rank == 0));
    }
    fault.name = NULL;
    close_group(group);
    all_are_here();
}

// MPI counts elements in an int: a large sum is one of several parts. Its memory is not touched.
static void a_fast_sum_of_many_elements(void **state) {
    (void)state;
    enum { MOST = INT_MAX / 8, REST = 5 };
    const size_t count = 2 * (size_t)MOST + REST;
    Error err = {0};
    float *many = mmap(NULL, count * sizeof *many, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(many != MAP_FAILED);
    ProcessGroup *group = open_first(WORLD, -1);
    assert_int_equal(pg_use_fast_sums(group, &err), 0);
    seen.only_listed = true;
    expect_success(group, pg_all_reduce(many, count, PG_F32, PG_SUM));
    seen.only_listed = false;
    assert_int_equal(seen.sums, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(seen.summed[i], many + (size_t)i * MOST);
        assert_int_equal(seen.counts[i], i < 2 ? MOST : REST);
    }
    close_group(group);
    munmap(many, count * sizeof *many);
}

// ---- memory that cannot be mapped ---------------------------------------------------------------

// When the group is opened, a failed mapping makes each rank its own host; later, it is an error.
static void ranks_that_cannot_map_memory(void **state) {
    (void)state;
    Error err = {0};
    set_fault(1, "open", 1);
    ProcessGroup *group = open_first(WORLD, -1);
    float *shared = pg_shared_alloc(group, COUNT * sizeof *shared, &err);
    assert_int_equal(fault.calls, me.rank == 1); // no second attempt
    fault.name = NULL;
    for (int i = 0; i < COUNT; i++) shared[i] = (float)(me.rank + i % 7);
    expect_success(group, pg_all_reduce(shared, COUNT, PG_F32, PG_SUM));
    for (int i = 0; i < COUNT; i++) assert_true(shared[i] == (float)(6 + i % 7 * WORLD));
    close_group(group);

    group = open_first(WORLD, -1);
    set_fault(1, "open", 1);
    const bool succeeds = pg_shared_alloc(group, COUNT, &err);
    if (succeeds) assert_true(me.rank >= 2); // on the other host, which receives the error later
    if (succeeds) assert_int_equal(pg_run(group, pg_recv(shared, 1, PG_F32, 0), &err), -1);
    check_words(group, &err, " memory of ");
    if (me.rank == 1) check_words(group, &err, "cannot open the shared memory of process");
    if (me.rank == 0 && !strstr(err.message, "cannot open")) // unless rank 1's error came first
        check_words(group, &err, "rank 1 cannot map the memory of rank 0");
    fault.name = NULL;
    close_group(group);
    all_are_here();
}

// ---- opening ------------------------------------------------------------------------------------

static void every_failure_of_mpi_opens_no_group(void **state) {
    (void)state;
    static const char *const NAMES[] = {"Comm_group",
                                        "Group_incl",
                                        "Comm_create_group",
                                        "Comm_set_errhandler",
                                        "Comm_rank",
                                        "Comm_size",
                                        "Bcast",
                                        "Comm_free",
                                        "Allgather"};
    for (size_t i = 0; me.rank == 0 && i < sizeof NAMES / sizeof *NAMES; i++) {
        Error err = {0};
        char words[64];
        set_fault(0, NAMES[i], 1);
        assert_null(open_group(1, &err));
        fault.name = NULL;
        snprintf(words, sizeof words, "MPI_%s: ", NAMES[i]);
        if (!strstr(err.message, words)) fail_msg("%s: %s", NAMES[i], err.message);
    }
    all_are_here();
}

// A subgroup whose only member cannot open it breaks the member's group.
static void a_subgroup_that_cannot_be_opened(void **state) {
    (void)state;
    Error err = {0};
    ProcessGroup *group = open_first(WORLD, -1);
    set_fault(2, "Comm_group", 1);
    assert_null(pg_new_subgroup(group, (int[]){2}, 1, &err));
    fault.name = NULL;
    if (me.rank == 2) check_words(group, &err, "MPI_Comm_group: ");
    all_are_here();
    close_group(group);
    all_are_here();
}

// A group whose flight records' folder has too long a path is closed again.
static void a_group_without_records_is_not_opened(void **state) {
    (void)state;
    char folder[FLIGHT_PATH_MAX + 1];
    Error err = {0};
    memset(folder, 'x', sizeof folder);
    folder[FLIGHT_PATH_MAX] = '\0';
    const PgOptions options = {.timeout_s = LONG_S, .flight_folder = folder};
    const int comms = comms_left();
    assert_null(pg_opener_mpi.open(
        &(PgEndpoint){.rank = me.rank, .world = me.world_size, .options = &options}, &err));
    if (!strstr(err.message, "is too long")) fail_msg("%s", err.message);
    assert_int_equal(comms_left(), comms);
}

// A thread of each broken group waits to end the process.
static void every_broken_group_ends_the_process(void **state) {
    (void)state;
    assert_true(broken > 0);
    (void)sync_wait(&lingering, broken, NULL, clock_ns_after(LONG_S / 3), SYNC_SPINS);
    assert_int_equal(sync_load(&lingering), broken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_of_mpi_opens_no_group),
        cmocka_unit_test(a_subgroup_that_cannot_be_opened),
        cmocka_unit_test(a_group_without_records_is_not_opened),
        cmocka_unit_test(a_rank_that_is_away_is_named),
        cmocka_unit_test(a_monitored_barrier_names_the_first_or_all),
        cmocka_unit_test(a_rank_that_stops_has_begun_it),
        cmocka_unit_test(a_subgroup_names_both_numbers),
        cmocka_unit_test(ranks_that_disagree),
        cmocka_unit_test(a_message_of_another_size),
        cmocka_unit_test(a_rank_that_gives_up_is_heard),
        cmocka_unit_test(a_complete_collective_outlives_an_abort),
        cmocka_unit_test(a_rank_that_cannot_be_told),
        cmocka_unit_test(every_failure_of_mpi_ends_the_call),
        cmocka_unit_test(fast_sums_are_those_that_mpi_has),
        cmocka_unit_test(messages_of_many_bytes),
        cmocka_unit_test(a_fast_sum_of_many_elements),
        cmocka_unit_test(ranks_that_cannot_map_memory),
        cmocka_unit_test(every_broken_group_ends_the_process),
    };
    Error err = {0};
    setenv("CMOCKA_TEST_ABORT", "1", 1); // a failed rank ends the job, as the others wait for it
    must_do(init_from_env(&me, false, &err), &err);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, LONG_S, &err), &err);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
