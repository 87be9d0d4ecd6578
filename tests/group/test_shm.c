/* test_shm.c: the shm backend: finding and joining a group, and the number of barriers of each
 * collective. Results of collectives: test_process_group.c.
 */
#include "tests/rigs/mapped_segments.h"
#include "tests/rigs/rank_failures.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "ddp/group/backends.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/shm/shm_internal.h"

// ---- joining --------------------------------------------------------------------------------

static void refused(const char *address, int world, const char *says) {
    Error error = {0};
    PgEndpoint endpoint = {.world = world};
    const int mapped = mapped_segments();
    snprintf(endpoint.address, sizeof endpoint.address, "%s", address);
    assert_int_equal(pg_opener_shm.reach(&endpoint, &error), -1);
    assert_int_equal(mapped_segments(), mapped);
    assert_null(endpoint.found);
    must_contain(error.message, says);
}

static void addresses_of_groups(void **state) {
    (void)state;
    Error error = {0};
    const PgOptions options = {.timeout_s = 1};
    PgEndpoint zero = {.world = PG_SHM_MAX_WORLD + 1, .options = &options};
    const char *address = zero.address;
    char wrong[PG_ADDRESS_MAX + 8];
    assert_int_equal(pg_opener_shm.create(&zero, &error), -1);
    must_contain(error.message, "1 to 64 ranks, not 65");
    zero.world = 0;
    error = (Error){0};
    assert_int_equal(pg_opener_shm.create(&zero, &error), -1);
    must_contain(error.message, "1 to 64 ranks, not 0");
    error = (Error){0};
    zero.world = 2;
    assert_int_equal(pg_opener_shm.create(&zero, &error), 0);

    refused("", 2, "not the address of an shm group");
    refused("/etc/passwd", 2, "not the address of an shm group");
    snprintf(wrong, sizeof wrong, "%s x", address);
    refused(wrong, 2, "not the address of an shm group");
    refused("/proc/1/fd/999999 0123456789abcdef", 2, "one PID namespace");
    refused(address, 3, "a group of another size");
    snprintf(wrong, sizeof wrong, "%s", address);
    char *last = &wrong[strlen(wrong) - 1];
    *last = *last == '0' ? '1' : '0';
    refused(wrong, 2, "the memory of something else");

    ShmControl *control = (ShmControl *)(void *)((PgShmSegment *)zero.found)->base;
    control->slot_bytes++;
    refused(address, 2, "it was made by another version of this program");
    control->slot_bytes--;
    const off_t bytes = (off_t)((PgShmSegment *)zero.found)->bytes;
    assert_int_equal(ftruncate(((PgShmSegment *)zero.found)->fd, bytes + 1), 0);
    refused(address, 2, "it was made by another version of this program");
    assert_int_equal(ftruncate(((PgShmSegment *)zero.found)->fd, bytes), 0);

    PgEndpoint twin = zero;
    const int mapped = mapped_segments();
    twin.rank = 2;
    assert_int_equal(pg_opener_shm.reach(&twin, &error), 0);
    assert_null(pg_opener_shm.open(&twin, &error));
    must_contain(error.message, "rank 2: the group has 2 ranks");
    assert_null(twin.found);
    assert_int_equal(mapped_segments(), mapped);
    pg_opener_shm.release(&zero);
    refused(address, 2, "cannot open the shared memory"); // the segment is gone

    // The rank's slot is already attached.
    error = (Error){0};
    zero.world = 1;
    assert_int_equal(pg_opener_shm.create(&zero, &error), 0);
    twin = zero;
    assert_int_equal(pg_opener_shm.reach(&twin, &error), 0);
    ProcessGroup *first = pg_opener_shm.open(&zero, &error);
    assert_non_null(first);
    assert_null(pg_opener_shm.open(&twin, &error));
    must_contain(error.message, "two processes are rank 0");
    refused(address, 1, "cannot open the shared memory"); // sealed: all have attached
    pg_close(first);
}

// One of several threads' ranks cannot create its pipe: the other ranks are closed, all memory is
// unmapped.
static void threads_of_which_one_fails(void **state) {
    (void)state;
    const int mapped = mapped_segments();
    for (int fails = 0; fails < 3; fails++) {
        char folder[] = "/tmp/ddpc.XXXXXX", pipe[64], prefix[32];
        ProcessGroup *groups[3];
        Error error = {0};
        assert_non_null(mkdtemp(folder));
        snprintf(pipe, sizeof pipe, "%s/%d.pipe", folder, fails);
        snprintf(prefix, sizeof prefix, "%s/", folder);
        assert_int_equal(mkdir(pipe, 0700), 0); // occupies the pipe's name
        const PgOptions options = {.timeout_s = 60, .flight_pipe = prefix};
        assert_int_equal(pg_shm_threads(3, &options, groups, &error), -1);
        must_contain(error.message, pipe);
        assert_int_equal(mapped_segments(), mapped);
        assert_int_equal(rmdir(pipe), 0);
        assert_int_equal(rmdir(folder), 0); // empty: the other pipes were removed
    }
    ProcessGroup *none[1];
    Error error = {0};
    assert_int_equal(pg_shm_threads(0, &(PgOptions){.timeout_s = 1}, none, &error), -1);
    must_contain(error.message, "1 to 64 ranks, not 0");
}

// Addresses that name other files of this process; the id in the address is 0, as theirs is.
static void files_that_are_no_group(void **state) {
    (void)state;
    const struct Case {
        off_t bytes; // size of the file; -1: /dev/null
        const char *says;
    } CASES[] = {{-1, "is not the shared memory that was announced"},
                 {0, "is not the shared memory that was announced"},
                 {sizeof(ShmControl) - 1, "it is the memory of something else"},
                 {sizeof(ShmControl), "it is a group of another size"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char address[PG_ADDRESS_MAX];
        const bool plain = CASES[i].bytes >= 0;
        const int fd = plain ? memfd_create("test", 0) : open("/dev/null", O_RDWR);
        assert_true(fd >= 0);
        if (plain) assert_int_equal(ftruncate(fd, CASES[i].bytes), 0);
        snprintf(address, sizeof address, "/proc/%d/fd/%d 0000000000000000", (int)getpid(), fd);
        refused(address, 2, CASES[i].says);
        close(fd);
    }
}

typedef struct JoinedRank {
    PgEndpoint *endpoint;
    ProcessGroup *group;
    float value;
    Error error;
} JoinedRank;

static void *sum_in_large_world(void *context) {
    JoinedRank *rank = context;
    rank->value = (float)pg_rank(rank->group);
    Collective sum = pg_all_reduce(&rank->value, 1, PG_F32, PG_SUM);
    int all[PG_SHM_MAX_WORLD];
    for (int r = 0; r < PG_SHM_MAX_WORLD; r++) all[r] = r;
    ProcessGroup *again = pg_new_subgroup(rank->group, all, PG_SHM_MAX_WORLD, &rank->error);
    if (!again || pg_run(again, sum, &rank->error) != 0) rank->value = -1;
    pg_close(again);
    pg_close(rank->group);
    return NULL;
}

// A sum of the largest group's largest subgroup.
static void the_largest_world(void **state) {
    (void)state;
    enum { WORLD = PG_SHM_MAX_WORLD };
    ProcessGroup *groups[WORLD];
    JoinedRank ranks[WORLD];
    pthread_t threads[WORLD];
    Error error = {0};
    const PgOptions options = {.timeout_s = 60};
    assert_int_equal(pg_shm_threads(WORLD, &options, groups, &error), 0);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (JoinedRank){.group = groups[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, sum_in_large_world, &ranks[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < WORLD; r++) {
        if (ranks[r].error.status) fail_msg("rank %d: %s", r, ranks[r].error.message);
        assert_true(ranks[r].value == WORLD * (WORLD - 1) / 2);
    }
}

// Rank 0 of three: the others never join.
static void no_rank_joins(void **state) {
    (void)state;
    Error error = {0};
    PgEndpoint endpoint = {.world = 3, .options = &(PgOptions){.timeout_s = 0.2}};
    assert_int_equal(pg_opener_shm.create(&endpoint, &error), 0);
    assert_null(pg_opener_shm.open(&endpoint, &error));
    must_contain(error.message, "joining a group of 3: rank 1, 2 did not arrive within 0.2 s; "
                                "rank 1 never joined; has finished no collective, "
                                "rank 2 never joined; has finished no collective");
}

// After all have joined, rank 1 fails to create its pipe: rank 0 gets rank 1's message as its
// error.
static void *open_and_meet(void *context) {
    JoinedRank *rank = context;
    rank->group = pg_opener_shm.open(rank->endpoint, &rank->error);
    if (rank->group) (void)pg_run(rank->group, pg_barrier(), &rank->error);
    pg_close(rank->group);
    return NULL;
}

static void a_rank_that_fails_as_it_joins(void **state) {
    (void)state;
    Error error = {0};
    const PgOptions plain = {.timeout_s = 60},
                    piped = {.timeout_s = 60, .flight_pipe = "/nowhere/"};
    PgEndpoint zero = {.world = 2, .options = &plain};
    pthread_t thread;
    assert_int_equal(pg_opener_shm.create(&zero, &error), 0);
    PgEndpoint one = zero;
    one.rank = 1;
    one.options = &piped;
    assert_int_equal(pg_opener_shm.reach(&one, &error), 0);
    JoinedRank first = {.endpoint = &zero};
    assert_int_equal(pthread_create(&thread, NULL, open_and_meet, &first), 0);
    assert_null(pg_opener_shm.open(&one, &error));
    pthread_join(thread, NULL);
    must_contain(error.message, "rank 1: cannot make the pipe /nowhere/1.pipe: ");
    assert_string_equal(first.error.message, error.message);
}

// ---- memory that cannot be mapped ---------------------------------------------------------------

// Two ranks: the largest size whose double fits in off_t, of which the kernel has too little, and
// the next one.
static void too_much_memory(ProcessGroup *group, const void *argument, Outcome *outcome) {
    if (pg_shared_alloc(group, *(const size_t *)argument, &outcome->error))
        problem(outcome, "got memory");
}

static void memory_whose_size_overflows(void **state) {
    (void)state;
    const size_t first = (size_t)1 << 62;
    for (int overflows = 0; overflows < 2; overflows++) {
        const size_t bytes = overflows ? first : first - segment_whole_pages(1);
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_THREADS, 2, 60, too_much_memory, &bytes, outcomes);
        check_messages(outcomes, 2,
                       overflows ? "shared memory: the size overflows"
                                 : " bytes of shared memory: ");
    }
}

// Rank 1 has no free file descriptors and cannot map rank 0's memory: all ranks report its error,
// and only the group's own memory stays mapped.
static void map_in_vain(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const bool subgroup = *(const bool *)argument;
    const int before = mapped_segments();
    ProcessGroup *inner = NULL;
    void *memory = NULL;
    if (pg_rank(group) == 1) setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 4096});
    if (subgroup) inner = pg_new_subgroup(group, (int[]){0, 1, 2}, 3, &outcome->error);
    if (!subgroup) memory = pg_shared_alloc(group, 8, &outcome->error);
    if (pg_rank(group) == 1) setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 4096});
    if (inner || memory) problem(outcome, "rank 1 maps what it cannot open");
    if (subgroup && mapped_segments() != before) problem(outcome, "a member's memory stays mapped");
    check_sticky(group, outcome);
}

static void a_rank_that_cannot_open_memory(void **state) {
    (void)state;
    if (UNDER_TSAN || UNDER_ASAN) skip(); // their runtimes open files
    for (int i = 0; i < 2; i++) {
        const bool subgroup = i;
        Outcome outcomes[RANKS_MAX];
        play_ranks(AS_PROCESSES, 3, 60, map_in_vain, &subgroup, outcomes);
        check_messages(outcomes, 3, "cannot open the shared memory of process |Too many open");
    }
}

// ---- barriers ---------------------------------------------------------------------------------

enum { WORLD = 3, HALF = 256 * 1024 / 4, PIECE = HALF / WORLD, MANY = 70000 };

enum { SLICE = MANY / 16 / WORLD * 16 }; // elements of ranks 0 and 1: whole cache lines

static float mine[WORLD][WORLD * MANY], other[WORLD][WORLD * MANY]; // of each rank

typedef struct Way {
    Collective collective;
    uint32_t barriers;
    size_t moved; // elements of other ranks' memory that rank 1 reads or writes
} Way;

static void check_ways(ProcessGroup *group, const Way *ways, size_t count, Outcome *outcome) {
    const PgShm *shm = group->state;
    for (size_t i = 0; i < count; i++) {
        const uint32_t before = shm->barriers;
        const uint64_t moved = pg_moved_bytes(group);
        if (pg_run(group, ways[i].collective, &outcome->error) != 0)
            problem(outcome, "way %zu: %s", i, outcome->error.message);
        else if (shm->barriers - before != ways[i].barriers)
            problem(outcome, "way %zu: %u barriers", i, shm->barriers - before);
        const uint64_t bytes = pg_moved_bytes(group) - moved;
        if (pg_rank(group) == 1 && bytes != ways[i].moved * pg_type_bytes(ways[i].collective.type))
            problem(outcome, "way %zu: %zu bytes moved", i, (size_t)bytes);
    }
}

// Barriers with private memory: 1 for up to 16 bytes per rank; otherwise 1, and 1 for each half
// mailbox. The half holds all pieces of a call that sends a piece to each rank.
static void private_ways(ProcessGroup *group, const void *argument, Outcome *outcome) {
    float *x = mine[pg_rank(group)], *y = other[pg_rank(group)];
    (void)argument;
    const Way ways[] = {
        {pg_barrier(), 1, 0},
        {pg_all_reduce(x, 4, PG_F32, PG_SUM), 1, 8},
        {pg_all_reduce(x, 5, PG_F32, PG_SUM), 2, 10},
        {pg_all_reduce(x, 16, PG_U8, PG_MAX), 1, 32},
        {pg_all_reduce(x, 17, PG_U8, PG_MAX), 2, 34},
        {pg_all_reduce(x, HALF, PG_F32, PG_AVG), 2, 2 * HALF},
        {pg_all_reduce(x, HALF + 1, PG_F32, PG_AVG), 3, 2 * (HALF + 1)},
        {pg_all_reduce(x, 2 * HALF + 1, PG_F32, PG_AVG), 4, 4 * HALF + 2},
        {pg_reduce(x, HALF, PG_F32, PG_SUM, 1), 2, 2 * HALF},
        {pg_reduce(x, HALF + 1, PG_F32, PG_SUM, 1), 3, 2 * (HALF + 1)},
        {pg_broadcast(x, 4, PG_F32, 2), 1, 4},
        {pg_broadcast(x, HALF, PG_F32, 2), 2, HALF},
        {pg_broadcast(x, HALF + 1, PG_F32, 2), 3, HALF + 1},
        {pg_all_gather(x, y, 4, PG_F32), 1, 8},
        {pg_all_gather(x, y, HALF, PG_F32), 2, 2 * HALF},
        {pg_all_gather(x, y, HALF + 1, PG_F32), 3, 2 * (HALF + 1)},
        {pg_gather(x, y, HALF, PG_F32, 0), 2, 0},
        {pg_gather(x, y, HALF + 1, PG_F32, 0), 3, 0},
        {pg_scatter(y, x, 1, PG_F32, 0), 1, 1},
        {pg_scatter(y, x, 2, PG_F32, 0), 2, 2},
        {pg_scatter(y, x, PIECE, PG_F32, 0), 2, PIECE},
        {pg_scatter(y, x, PIECE + 1, PG_F32, 0), 3, PIECE + 1},
        {pg_reduce_scatter(y, x, 1, PG_F32, PG_SUM), 1, 2},
        {pg_reduce_scatter(y, x, 2, PG_F32, PG_SUM), 2, 4},
        {pg_reduce_scatter(y, x, PIECE, PG_F32, PG_SUM), 2, 2 * PIECE},
        {pg_reduce_scatter(y, x, PIECE + 1, PG_F32, PG_SUM), 3, 2 * (PIECE + 1)},
    };
    check_ways(group, ways, sizeof ways / sizeof *ways, outcome);
}

// Barriers with shared memory: 2, if all ranks pass the same offset and no rank writes memory that
// another one reads; otherwise as with private memory.
static void shared_ways(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const size_t rank = (size_t)pg_rank(group);
    float *x = pg_shared_alloc(group, (WORLD + 2) * MANY * sizeof *x, &outcome->error);
    float *send = x + MANY, *own = mine[rank], *behind = send + WORLD * MANY;
    if (!x) problem(outcome, "%s", outcome->error.message);
    const Way ways[] = {
        {pg_all_reduce(x, MANY, PG_F32, PG_SUM), 2, 4 * SLICE},
        {pg_all_reduce(x + rank, MANY, PG_F32, PG_SUM), 3, 2 * MANY}, // offsets differ
        {pg_all_reduce(rank ? x : own, MANY, PG_F32, PG_SUM), 3, 2 * MANY},
        {pg_all_reduce(x, 4, PG_F32, PG_SUM), 1, 8},
        {pg_reduce(x, MANY, PG_F32, PG_SUM, 2), 2, 3 * SLICE},
        {pg_reduce(x, MANY, PG_F32, PG_SUM, 1), 2, 2 * SLICE},
        {pg_broadcast(x, MANY, PG_F32, 1), 2, 0},
        {pg_broadcast(x, MANY, PG_F32, 2), 2, MANY},
        {pg_all_gather(x + rank * MANY, x, MANY, PG_F32), 2, 2 * MANY},
        {pg_all_gather(x + MANY * 3, x, MANY, PG_F32), 3, 2 * MANY},
        {pg_gather(x + rank * MANY, x, MANY, PG_F32, 0), 3, 0},
        {pg_reduce_scatter(send, send + rank * MANY, MANY, PG_F32, PG_SUM), 2, 2 * MANY},
        {pg_reduce_scatter(send, own, MANY, PG_F32, PG_SUM), 2, 2 * MANY},
        {pg_reduce_scatter(send, x, MANY, PG_F32, PG_SUM), 2, 2 * MANY}, // ends where send begins
        {pg_reduce_scatter(send, x + 1, MANY, PG_F32, PG_SUM), 5,
         2 * MANY}, // overlaps rank 0's piece
        {pg_reduce_scatter(send, behind, MANY, PG_F32, PG_SUM), 2,
         2 * MANY}, // begins where send ends
        {pg_reduce_scatter(send, behind - 1, MANY, PG_F32, PG_SUM), 5, 2 * MANY},
    };
    check_ways(group, ways, sizeof ways / sizeof *ways, outcome);
}

static void barriers_of_each_collective(void **state) {
    (void)state;
    play_ranks(AS_THREADS, WORLD, 60, private_ways, NULL, NULL);
    play_ranks(AS_THREADS, WORLD, 60, shared_ways, NULL, NULL);
}

// ---- waits that fail ----------------------------------------------------------------------------

static const char REASON[] = "the cable is pulled";
static _Thread_local int
    waits_left; // of this rank, until the group breaks; 0: it has, or never will

int __real_shm_barrier(PgShm *shm, Error *err);
int __wrap_shm_barrier(PgShm *shm, Error *err);
int __real_shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err);
int __wrap_shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err);

static bool breaks_here(PgShm *shm) {
    if (waits_left == 0 || --waits_left > 0) return false;
    shm_abort(shm, REASON);
    return true;
}

int __wrap_shm_barrier(PgShm *shm, Error *err) {
    return breaks_here(shm) ? shm_check_abort(shm, err) : __real_shm_barrier(shm, err);
}

int __wrap_shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err) {
    return breaks_here(shm) ? shm_check_abort(shm, err)
                            : __real_shm_await(shm, peer, word, target, err);
}

static _Thread_local PgShm *slow; // this rank opens memory only when rank 0 has closed its group

PgShmSegment *__real_segment_share(PgShmSegment *segment);
PgShmSegment *__wrap_segment_share(PgShmSegment *segment);

PgShmSegment *__wrap_segment_share(PgShmSegment *segment) {
    if (slow)
        (void)sync_wait(&slow->control->slots[0].presence, RANK_CLOSED, NULL, clock_ns_after(60),
                        SYNC_SPINS);
    return __real_segment_share(segment);
}

typedef enum Call { STAGED, PIECES, DIRECT, SEND, ALLOCATE, SPLIT, CALLS } Call;

typedef struct Break {
    Call call;
    int at; // the wait of rank 1, from 1, behind the barrier that begins the call
} Break;

static int make_call(ProcessGroup *group, Call call, float *shared, Error *err) {
    const int rank = pg_rank(group);
    float *own = mine[rank], *pieces = other[rank];
    ProcessGroup *inner = NULL;
    switch (call) {
    case STAGED:
        return pg_run(group, pg_all_reduce(own, WORLD * MANY, PG_F32, PG_SUM), err);
    case PIECES:
        return pg_run(group, pg_all_gather(own, pieces, MANY, PG_F32), err);
    case DIRECT:
        return pg_run(group, pg_all_reduce(shared, MANY, PG_F32, PG_SUM), err);
    case SEND:
        if (rank == 0) return pg_run(group, pg_recv(own, WORLD * MANY, PG_F32, 1), err);
        return rank > 1 || pg_run(group, pg_send(own, WORLD * MANY, PG_F32, 0), err) == 0 ? 0 : -1;
    case ALLOCATE:
        return pg_shared_alloc(group, 8, err) ? 0 : -1;
    default:
        inner = pg_new_subgroup(group, (int[]){0, 1, 2}, WORLD, err);
        pg_close(inner);
        return inner ? 0 : -1;
    }
}

// number: whether the group broke.
static void break_at_a_wait(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Break *b = argument;
    const int rank = pg_rank(group);
    float *shared = pg_shared_alloc(group, MANY * sizeof *shared, &outcome->error);
    waits_left = rank == 1 ? b->at : 0;
    slow = rank == 2 && b->call >= ALLOCATE && b->at == 2 ? group->state : NULL;
    const int status = make_call(group, b->call, shared, &outcome->error);
    outcome->number = rank == 1 && waits_left == 0;
    waits_left = 0;
    slow = NULL;
    if (status != (outcome->error.status == STATUS_OK ? 0 : -1)) problem(outcome, "%d", status);
    if (outcome->number && status == 0) problem(outcome, "it broke, and succeeded");
}

static void each_wait_returns_its_failure(void **state) {
    (void)state;
    for (int call = 0; call < CALLS; call++) {
        bool broken = true;
        for (int at = 1; broken; at++) {
            Outcome outcomes[RANKS_MAX];
            const Break b = {(Call)call, at};
            play_ranks(AS_THREADS, WORLD, 60, break_at_a_wait, &b, outcomes);
            broken = outcomes[1].number;
            if (!broken && at == 1) fail_msg("call %d has no wait", call);
            for (int r = 0; r < WORLD; r++) {
                if (call == SEND && r == 2) continue;
                assert_string_equal(outcomes[r].error.message, broken ? REASON : "");
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_of_groups),
        cmocka_unit_test(files_that_are_no_group),
        cmocka_unit_test(threads_of_which_one_fails),
        cmocka_unit_test(the_largest_world),
        cmocka_unit_test(no_rank_joins),
        cmocka_unit_test(a_rank_that_fails_as_it_joins),
        cmocka_unit_test(memory_whose_size_overflows),
        cmocka_unit_test(a_rank_that_cannot_open_memory),
        cmocka_unit_test(barriers_of_each_collective),
        cmocka_unit_test(each_wait_returns_its_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
