/* test_mpi_faults.c: what ranks of backend mpi say when a call goes wrong: a rank that is away,
 * disagrees, or gives up, and an MPI function that fails. A rank reports its own error or, where
 * another rank failed first, that rank's, and then for whom it waits itself.
 *
 * tests/clusters/mpi_faults.sh starts four ranks, two on each of two hosts that are none
 * (fake_hosts.c). This file stands between the backend and MPI (MPI's profiling interface): a
 * chosen call of a function fails, or stops until the others are done. A process with a broken
 * group is ended after a while (mpi_ends.sh); here that while never ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/sync.h"
#include "ddp/group/backends.h"
#include "ddp/group/group_internal.h"
#include "ddp/rendezvous/init.h"

#define PATIENCE_S 0.3 // of a rank whose peers do not come
#define LONG_S     60  // of all others

enum { WORLD = 4, COUNT = 64 * 1024 }; // floats: three chunks of a host's half (hosts.c)

static Rendezvous me;

static struct {
    const char *name; // of the function to fail; NULL: none
    int at, calls;    // its call of that number; calls so far
    bool stops;       // it waits until the others are done, and does not fail
} fault;

static SyncWord lingering; // threads that would end the process
static uint32_t broken;    // groups of this rank

// ---- between the backend and MPI ----------------------------------------------------------------

// Sleeps between two polls, as the backend does: MPI's own barrier spins.
static void all_are_here(void) {
    MPI_Request request;
    int done = 0;
    PMPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) usleep(50);
}

static bool fails(const char *name) {
    if (!fault.name || strcmp(fault.name, name) != 0 || ++fault.calls != fault.at) return false;
    if (fault.stops) all_are_here();
    return !fault.stops;
}

#define FAILING(NAME, PARAMETERS, ARGUMENTS)                         \
    int NAME PARAMETERS {                                            \
        return fails(#NAME + 4) ? MPI_ERR_OTHER : P##NAME ARGUMENTS; \
    }
FAILING(MPI_Isend,
        (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, to, tag, comm, request))
FAILING(MPI_Irecv,
        (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, from, tag, comm, request))
FAILING(MPI_Iallreduce,
        (const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        (send, receive, count, type, op, comm, request))
FAILING(MPI_Testall, (int count, MPI_Request requests[], int *done, MPI_Status statuses[]),
        (count, requests, done, statuses))
FAILING(MPI_Test, (MPI_Request * request, int *done, MPI_Status *status), (request, done, status))
FAILING(MPI_Comm_group, (MPI_Comm comm, MPI_Group *group), (comm, group))
FAILING(MPI_Group_incl, (MPI_Group all, int count, const int ranks[], MPI_Group *group),
        (all, count, ranks, group))
FAILING(MPI_Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
        (comm, group, tag, made))
FAILING(MPI_Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), (comm, handler))
FAILING(MPI_Comm_rank, (MPI_Comm comm, int *rank), (comm, rank))
FAILING(MPI_Comm_size, (MPI_Comm comm, int *size), (comm, size))
FAILING(MPI_Comm_free, (MPI_Comm * comm), (comm))
FAILING(MPI_Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
        (data, count, type, root, comm))
FAILING(MPI_Allgather,
        (const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
         MPI_Datatype receive_type, MPI_Comm comm),
        (send, send_count, send_type, receive, receive_count, receive_type, comm))

// Another rank's memory is opened as /proc/PID/fd/N.
int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/") && fails("open")) {
        errno = EACCES;
        return -1;
    }
    return openat(AT_FDCWD, path, flags, mode);
}

// The backend's naps are short; the patience with a broken group is seconds.
int nanosleep(const struct timespec *time, struct timespec *left) {
    if (time->tv_sec < 5) return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    uint32_t before = sync_load(&lingering);
    while (!sync_claim(&lingering, before, before + 1)) before = sync_load(&lingering);
    sync_wake(&lingering);
    for (;;) pause();
}

static void set_fault(int rank, const char *name, int at) {
    fault.name = me.rank == rank ? name : NULL;
    fault.at = at;
    fault.calls = 0;
    fault.stops = false;
}

// ---- groups -------------------------------------------------------------------------------------

static ProcessGroup *open_group(int world, Error *err) {
    const PgOptions options = {.timeout_s = LONG_S};
    return pg_opener_mpi.open(&(PgEndpoint){.rank = me.rank, .world = world, .options = &options},
                              err);
}

// Of the first `world` ranks; NULL on the others. One rank is impatient, once its group is open.
static ProcessGroup *open_first(int world, int impatient) {
    Error err = {0};
    if (me.rank >= world) return NULL;
    ProcessGroup *group = open_group(world, &err);
    if (!group) fail_msg("%s", err.message);
    if (me.rank == impatient) group->timeout_s = PATIENCE_S;
    return group;
}

static void close_group(ProcessGroup *group) {
    broken += group && pg_check_sound(group, NULL) != 0;
    pg_close(group);
}

// The words are parts of the error ("a|b"), and every later call has the same error.
static void check_words(ProcessGroup *group, const Error *err, const char *words) {
    char copy[512], *rest = copy;
    Error again = {0};
    assert_int_equal(err->status == STATUS_OK, 0);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *part = strtok_r(copy, "|", &rest); part; part = strtok_r(NULL, "|", &rest))
        if (!strstr(err->message, part))
            fail_msg("rank %d: \"%s\" does not say \"%s\"", me.rank, err->message, part);
    assert_int_equal(pg_run(group, pg_barrier(), &again), -1);
    assert_string_equal(again.message, err->message);
}

static void expect_failure(ProcessGroup *group, Collective collective, const char *words) {
    Error err = {0};
    assert_int_equal(pg_run(group, collective, &err), -1);
    check_words(group, &err, words);
}

static void expect_success(ProcessGroup *group, Collective collective) {
    Error err = {0};
    if (pg_run(group, collective, &err) != 0) fail_msg("rank %d: %s", me.rank, err.message);
}

// ---- ranks that are away ------------------------------------------------------------------------

// Rank 0 alone calls; the words name who is missing, and what that rank began last. It finds them
// where it comes later.
static void a_rank_that_is_away_is_named(void **state) {
    (void)state;
    static float x[COUNT];
    const struct Case {
        int world;
        Collective before, call; // before: of all ranks, unless it is a send
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

// Rank 1 has come, and stops before it sends its part.
static void a_rank_that_stops_has_begun_it(void **state) {
    (void)state;
    float mine = 1, both[2];
    ProcessGroup *group = open_first(2, 0);
    if (me.rank == 0)
        expect_failure(group, pg_all_gather(&mine, both, 1, PG_F32),
                       "collective 1 all_gather(F32, 1): rank 1 did not arrive within 0.3 s; "
                       "rank 1 had begun it");
    set_fault(1, "Isend", 2);
    fault.stops = true;
    Error err = {0};
    if (me.rank == 1)
        (void)pg_run(group, pg_all_gather(&mine, both, 1, PG_F32), &err); // stops
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

// ---- ranks that disagree or give up -------------------------------------------------------------

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

// Rank 0 gives up; rank 1 hears it and says for whom it waits, in the order of their numbers.
static void a_rank_that_gives_up_is_heard(void **state) {
    (void)state;
    ProcessGroup *group = open_first(3, -1);
    Error own = {0}, late = {0};
    error_set(&own, STATUS_FAILED, "the loss is nan");
    error_set(&late, STATUS_FAILED, "another error");
    if (me.rank == 0) assert_true(pg_abort(group, &own));
    if (me.rank == 1)
        expect_failure(group, pg_barrier(),
                       "rank 0: the loss is nan. Rank 1 itself waits for rank 0, 2");
    if (me.rank < 2) assert_false(pg_abort(group, &late));
    all_are_here();
    if (group && me.rank == 2)
        expect_failure(group, pg_recv(&own, 1, PG_U8, 0), "rank 0: the loss is nan");
    close_group(group);
    all_are_here();
}

// ---- functions of MPI that fail -----------------------------------------------------------------

// Runs the collective with a failure in call `at` of the function of rank `rank`. The other ranks
// end with its words, or with the sum, if they needed nothing more of it. Returns whether that rank
// got that far.
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
        assert_true(sends > WORLD && receives > WORLD); // headers, and data
        assert_true(fails_at(way->rank, "Testall", 1, way->make));
    }
    assert_true(fails_at(1, "Test", 1, sum_on_hosts));
    assert_true(fails_at(1, "Iallreduce", 1, sum_fast));
}

// Only sums of floats and doubles, which MPI computes as we do, but for the order.
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
        set_fault(me.rank, "Iallreduce", 0); // counts only
        expect_success(group, pg_all_reduce(values, 1000, CASES[i].type, CASES[i].op));
        assert_int_equal(fault.calls, CASES[i].calls);
        if (CASES[i].calls) // a ring's
            assert_int_equal(pg_moved_bytes(group) - before,
                             2 * 1000 * pg_type_bytes(CASES[i].type) * (WORLD - 1) / WORLD);
    }
    fault.name = NULL;
    close_group(group);
}

// ---- memory that cannot be mapped ---------------------------------------------------------------

// Found out at the opening, it means that each rank is a host of its own; later, it is an error.
static void ranks_that_cannot_map_memory(void **state) {
    (void)state;
    Error err = {0};
    set_fault(1, "open", 1);
    ProcessGroup *group = open_first(WORLD, -1);
    float *shared = pg_shared_alloc(group, COUNT * sizeof *shared, &err);
    assert_int_equal(fault.calls, me.rank == 1); // it is not tried again
    fault.name = NULL;
    for (int i = 0; i < COUNT; i++) shared[i] = (float)(me.rank + i % 7);
    expect_success(group, pg_all_reduce(shared, COUNT, PG_F32, PG_SUM));
    for (int i = 0; i < COUNT; i++) assert_true(shared[i] == (float)(6 + i % 7 * WORLD));
    close_group(group);

    group = open_first(WORLD, -1);
    set_fault(1, "open", 1);
    const bool succeeds = pg_shared_alloc(group, COUNT, &err);
    if (succeeds) assert_true(me.rank >= 2); // on the other host, where they hear of it
    if (succeeds) assert_int_equal(pg_run(group, pg_recv(shared, 1, PG_F32, 0), &err), -1);
    check_words(group, &err, " memory of ");
    if (me.rank == 1) check_words(group, &err, "cannot open the shared memory of process");
    if (me.rank == 0 && !strstr(err.message, "cannot open")) // or it hears rank 1 first
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

// Each of the groups that broke has begun to wait for the end of the process.
static void every_broken_group_ends_the_process(void **state) {
    (void)state;
    assert_true(broken > 0);
    (void)sync_wait(&lingering, broken, NULL, clock_ns_after(LONG_S / 3), SYNC_SPINS);
    assert_int_equal(sync_load(&lingering), broken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_of_mpi_opens_no_group),
        cmocka_unit_test(a_rank_that_is_away_is_named),
        cmocka_unit_test(a_monitored_barrier_names_the_first_or_all),
        cmocka_unit_test(a_rank_that_stops_has_begun_it),
        cmocka_unit_test(a_subgroup_names_both_numbers),
        cmocka_unit_test(ranks_that_disagree),
        cmocka_unit_test(a_message_of_another_size),
        cmocka_unit_test(a_rank_that_gives_up_is_heard),
        cmocka_unit_test(every_failure_of_mpi_ends_the_call),
        cmocka_unit_test(fast_sums_are_those_that_mpi_has),
        cmocka_unit_test(ranks_that_cannot_map_memory),
        cmocka_unit_test(every_broken_group_ends_the_process),
    };
    Error err = {0};
    setenv("CMOCKA_TEST_ABORT", "1", 1); // a rank that fails ends the job: the others wait for it
    must_do(init_from_env(&me, false, &err), &err);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, LONG_S, &err), &err);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
