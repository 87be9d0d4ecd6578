/* test_collective_load.c: bytes and messages that each rank sends and receives in a collective,
 * compared with their formulas, between ranks, and with a message-by-message simulation. On groups
 * with an emulated link no collective ends before the model's time, and the results' bits are
 * unchanged.
 */
#include "tests/rigs/ranks.h"

#include <math.h>

#include "common/device/link.h"
#include "ddp/group/collective_load.h"
#include "ddp/group/shm/shm_internal.h"

enum { COUNT = 60 };                                                    // divisible by 1 to 6
static const LinkSpeed SPEED = {.bytes_per_s = 1e9, .latency_s = 5e-6}; // 1 byte takes 1 ns
static float buffer[COUNT];

static Collective make(CollectiveKind kind, int root) {
    Collective c = pg_all_reduce(buffer, COUNT, PG_F32, PG_SUM);
    c.kind = kind;
    c.root = root;
    return c;
}

static uint64_t modelled_ns(const LinkLoad *load, LinkSpeed speed) {
    DeviceLink *link = link_create(speed);
    uint64_t ns = link_reserve_collective(link, load, 0);
    link_close(link);
    return ns;
}

// ---- the formulas -------------------------------------------------------------------------------

static void expect(CollectiveKind kind, int rank, double out, double in, int rounds) {
    const Collective c = make(kind, 1);
    const LinkLoad load = collective_load(&c, rank, 4);
    const double bytes = COUNT * sizeof(float);
    assert_true(fabs(load.out_bytes - out * bytes) < 1e-9);
    assert_true(fabs(load.in_bytes - in * bytes) < 1e-9);
    assert_int_equal(load.rounds, rounds);
}

// Four ranks, root 1: the chain is 1, 2, 3, 0; a reduction runs through it backwards.
static void formulas_of_four_ranks(void **unused) {
    (void)unused;
    for (int rank = 0; rank < 4; rank++) {
        expect(PG_ALL_REDUCE, rank, 1.5, 1.5, 6);
        expect(PG_REDUCE_SCATTER, rank, 3, 3, 3);
        expect(PG_ALL_GATHER, rank, 3, 3, 3);
        expect(PG_BARRIER, rank, 0, 0, 2);
        expect(PG_GATHER, rank, rank != 1, rank == 1 ? 3 : 0, 1);
        expect(PG_SCATTER, rank, rank == 1 ? 3 : 0, rank != 1, 1);
        expect(PG_BROADCAST, rank, rank != 0, rank != 1, 3);
        expect(PG_REDUCE, rank, rank != 1, rank != 0, 3);
    }
    expect(PG_SEND, 0, 1, 0, 1);
    expect(PG_RECV, 0, 0, 1, 1);
}

static void alone_nothing_is_sent(void **unused) {
    (void)unused;
    for (CollectiveKind kind = PG_ALL_REDUCE; kind <= PG_BARRIER; kind++) {
        const Collective c = make(kind, 0);
        const LinkLoad load = collective_load(&c, 0, 1);
        assert_true(load.out_bytes == 0 && load.in_bytes == 0 && load.rounds == 0);
    }
}

static void what_is_sent_is_received(void **unused) {
    (void)unused;
    for (int size = 1; size <= 6; size++)
        for (int root = 0; root < size; root++)
            for (CollectiveKind kind = PG_ALL_REDUCE; kind <= PG_BARRIER; kind++) {
                if (kind == PG_SEND || kind == PG_RECV) continue;
                double out = 0, in = 0;
                const Collective c = make(kind, root);
                for (int rank = 0; rank < size; rank++) {
                    const LinkLoad load = collective_load(&c, rank, size);
                    out += load.out_bytes;
                    in += load.in_bytes;
                }
                assert_true(fabs(out - in) < 1e-9);
            }
}

// ---- message by message -------------------------------------------------------------------------

enum { LINKS_MAX = 6 };

// Simulates `rounds` rounds in which each rank sends `bytes` to the next rank. Returns the time in
// ns.
static uint64_t play_ring(int size, int rounds, size_t bytes) {
    DeviceLink *links[LINKS_MAX];
    uint64_t now = 0;
    for (int r = 0; r < size; r++) links[r] = link_create(SPEED);
    for (int round = 0; round < rounds; round++) {
        uint64_t over = 0;
        for (int r = 0; r < size; r++) {
            uint64_t arrived = link_reserve(links[r], links[(r + 1) % size], bytes, now);
            over = arrived > over ? arrived : over;
        }
        now = over;
    }
    for (int r = 0; r < size; r++) link_close(links[r]);
    return now;
}

static void a_ring_played_out_takes_as_long(void **unused) {
    (void)unused;
    const size_t bytes = COUNT * sizeof(float);
    for (int size = 2; size <= LINKS_MAX; size++) {
        Collective c = make(PG_ALL_REDUCE, 0);
        LinkLoad load = collective_load(&c, 0, size);
        assert_int_equal(modelled_ns(&load, SPEED),
                         play_ring(size, 2 * (size - 1), bytes / (size_t)size));
        c.kind = PG_ALL_GATHER;
        load = collective_load(&c, size - 1, size);
        assert_int_equal(modelled_ns(&load, SPEED), play_ring(size, size - 1, bytes));
    }
}

static void a_gather_played_out_takes_as_long(void **unused) {
    (void)unused;
    DeviceLink *links[LINKS_MAX];
    uint64_t over = 0;
    for (int r = 0; r < LINKS_MAX; r++) links[r] = link_create(SPEED);
    for (int r = 1; r < LINKS_MAX; r++)
        over = link_reserve(links[r], links[0], COUNT * sizeof(float), 0);
    for (int r = 0; r < LINKS_MAX; r++) link_close(links[r]);
    const Collective c = make(PG_GATHER, 0);
    const LinkLoad load = collective_load(&c, 0, LINKS_MAX);
    assert_int_equal(modelled_ns(&load, SPEED), over);
}

// ---- groups on a link ---------------------------------------------------------------------------

enum { MANY = 250000 }; // 1 MB: at least 10 ms on the link
static const LinkSpeed SLOW = {.bytes_per_s = 1e8, .latency_s = 1e-3};

static _Thread_local uint64_t move_begins_ns; // of this thread's last staged collective

int __real_shm_staged(PgShm *shm, Error *err);
int __wrap_shm_staged(PgShm *shm, Error *err);
uint64_t __real_link_reserve_collective(DeviceLink *link, const LinkLoad *load, uint64_t now_ns);
uint64_t __wrap_link_reserve_collective(DeviceLink *link, const LinkLoad *load, uint64_t now_ns);

int __wrap_shm_staged(PgShm *shm, Error *err) {
    move_begins_ns = clock_ns();
    return __real_shm_staged(shm, err);
}

// The link is reserved from the time at which all ranks had arrived: the sum in memory overlaps it.
uint64_t __wrap_link_reserve_collective(DeviceLink *link, const LinkLoad *load, uint64_t now_ns) {
    CHECK(move_begins_ns == 0 || now_ns <= move_begins_ns, "reserved after the sum in memory");
    move_begins_ns = 0;
    return __real_link_reserve_collective(link, load, now_ns);
}

typedef int Collect(ProcessGroup *group, Collective c, Error *err);

static int start_and_wait(ProcessGroup *group, Collective c, Error *err) {
    PgWork *work = pg_start(group, c, err);
    return work ? pg_work_wait(work, NULL, NULL, err) : -1;
}

static void check_all_reduce(ProcessGroup *group, Collect *collect, Outcome *outcome) {
    float *values = malloc(MANY * sizeof *values);
    const int size = pg_size(group);
    for (size_t i = 0; i < MANY; i++) values[i] = (float)(pg_rank(group) + 1);
    const Collective c = pg_all_reduce(values, MANY, PG_F32, PG_SUM);
    const LinkLoad load = collective_load(&c, pg_rank(group), size);
    const uint64_t begin = clock_ns();
    if (collect(group, c, &outcome->error) != 0) problem(outcome, "%s", outcome->error.message);
    const uint64_t took = clock_ns() - begin;
    if (took < modelled_ns(&load, SLOW))
        problem(outcome, "%d ranks: %llu ns, faster than the link", size, (unsigned long long)took);
    for (size_t i = 0; i < MANY; i++)
        if (values[i] != (float)(size * (size + 1) / 2)) problem(outcome, "a sum is wrong");
    free(values);
}

static void on_a_link(ProcessGroup *group, const void *unused, Outcome *outcome) {
    (void)unused;
    DeviceLink *link = link_create(SLOW);
    pg_emulate_link(group, link);
    check_all_reduce(group, pg_run, outcome);
    check_all_reduce(group, start_and_wait, outcome);
    int both[] = {0, 1};
    ProcessGroup *inner = pg_new_subgroup(group, both, 2, &outcome->error); // uses the same link
    if (inner) check_all_reduce(inner, pg_run, outcome);
    pg_close(inner);
    const Collective barrier = pg_barrier();
    const LinkLoad load = collective_load(&barrier, pg_rank(group), pg_size(group));
    const uint64_t begin = clock_ns();
    if (pg_run(group, barrier, &outcome->error) != 0) problem(outcome, "the barrier failed");
    if (clock_ns() - begin < modelled_ns(&load, SLOW)) problem(outcome, "a barrier takes no time");
    link_close(link); // no call uses it any more; the group is closed later
}

static void no_collective_is_faster_than_its_link(void **unused) {
    (void)unused;
    play_ranks(AS_THREADS, 3, 60, on_a_link, NULL, NULL);
    if (!UNDER_TSAN) play_ranks(AS_PROCESSES, 3, 60, on_a_link, NULL, NULL);
}

// 1 MB at 1 KB/s fails at once instead of sleeping for a quarter of an hour.
static void too_slow(ProcessGroup *group, const void *unused, Outcome *outcome) {
    (void)unused;
    DeviceLink *link = link_create((LinkSpeed){.bytes_per_s = 1e3});
    float *values = calloc(MANY, sizeof *values);
    pg_emulate_link(group, link);
    Error err = {0};
    if (pg_run(group, pg_all_reduce(values, MANY, PG_F32, PG_SUM), &err) == 0)
        problem(outcome, "1 MB went over a link of 1 KB/s");
    if (!strstr(err.message, "all_reduce(F32, 250000, sum) takes 1e+03 s over the emulated link, "
                             "the timeout is 60 s"))
        problem(outcome, "said: %s", err.message);
    free(values);
    link_close(link);
}

static void a_link_slower_than_the_timeout_fails_at_once(void **unused) {
    (void)unused;
    play_ranks(AS_THREADS, 2, 60, too_slow, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_of_four_ranks),
        cmocka_unit_test(alone_nothing_is_sent),
        cmocka_unit_test(what_is_sent_is_received),
        cmocka_unit_test(a_ring_played_out_takes_as_long),
        cmocka_unit_test(a_gather_played_out_takes_as_long),
        cmocka_unit_test(no_collective_is_faster_than_its_link),
        cmocka_unit_test(a_link_slower_than_the_timeout_fails_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
