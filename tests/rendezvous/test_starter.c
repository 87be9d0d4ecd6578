/* test_starter.c: without MASTER_ADDR, rank 0 sends the store's address to the other ranks through
 * the program that started them, such as mpirun. Here that program is simulated: it broadcasts
 * through memory shared by the ranks' processes.
 */
#include "tests/rigs/meeting_ranks.h"

#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/sync.h"
#include "ddp/group/backends.h"

enum { TOLD_MAX = 2048 };

typedef struct Page {
    SyncWord told;
    bool refuses, deaf; // prepare fails; the function tell is missing
    bool no_network;
    char text[TOLD_MAX];
} Page;

static Page *page;
static int my_rank;

static int prepare(int rank, int world, double timeout_s, Error *err) {
    (void)world, (void)timeout_s;
    my_rank = rank;
    return page->refuses ? error_set(err, STATUS_FAILED, "the starter refuses rank %d", rank) : 0;
}

static void tell(char *text, int capacity, double timeout_s) {
    assert_true(capacity <= TOLD_MAX && timeout_s > 0);
    if (my_rank == 0) {
        memcpy(page->text, text, (size_t)capacity);
        sync_store(&page->told, 1);
    }
    (void)sync_wait(&page->told, 1, NULL, clock_ns_after(timeout_s), SYNC_SPINS_CROWDED);
    memcpy(text, page->text, (size_t)capacity);
}

const PgOpener *__wrap_pg_backend_of_starter(void);

const PgOpener *__wrap_pg_backend_of_starter(void) {
    static const PgOpener starter = {.name = "starter", .prepare = prepare, .tell = tell};
    static const PgOpener deaf = {.name = "deaf", .prepare = prepare};
    return page->deaf ? &deaf : &starter;
}

int __wrap_init_own_address(char *text, size_t capacity, Error *err);

int __wrap_init_own_address(char *text, size_t capacity, Error *err) {
    assert_true(capacity >= 16);
    if (page->no_network) return error_set(err, STATUS_FAILED, "this host has no network");
    strcpy(text, "127.0.0.2");
    return 0;
}

static int setup(void **state) {
    (void)state;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    return munmap(page, sizeof *page);
}

// A rank started by mpirun. Only rank 0's address is used.
static Rendezvous started(int rank, int world) {
    Rendezvous me = place(rank, world, 0);
    me.by_mpirun = me.master_unknown = true;
    if (rank != 0) strcpy(me.master_addr, "elsewhere");
    return me;
}

static void all_meet_where_rank_0_says(void **state) {
    (void)state;
    char tokens[2][STORE_TOKEN_MAX + 1];
    for (int round = 0; round < 2; round++) {
        Rendezvous ranks[3] = {started(0, 3), started(1, 3), started(2, 3)};
        Outcome outcomes[3];
        char host[256];
        int port = 0;
        sync_store(&page->told, 0);
        run_ranks(ranks, 3, LONG_S, outcomes);
        for (int r = 0; r < 3; r++) assert_string_equal(outcomes[r].message, "");
        assert_int_equal(sscanf(page->text, "ok %255s %d %64s", host, &port, tokens[round]), 3);
        assert_string_equal(host, "127.0.0.1");
        assert_true(port > 1023);
        assert_int_equal(strlen(tokens[round]), 32); // 128 bits
    }
    assert_string_not_equal(tokens[0], tokens[1]); // random
}

// On several hosts rank 0 sends its own address.
static void rank_0_says_its_own_address(void **state) {
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        Rendezvous ranks[2] = {started(0, 2), started(1, 2)};
        Outcome outcomes[2];
        for (int r = 0; r < 2; r++) ranks[r].several_hosts = true;
        sync_store(&page->told, 0);
        page->no_network = fails;
        run_ranks(ranks, 2, LONG_S, outcomes);
        for (int r = 0; r < 2; r++)
            assert_string_equal(outcomes[r].message, fails ? "this host has no network" : "");
        if (!fails) assert_memory_equal(page->text, "ok 127.0.0.2 ", 13);
    }
}

// Ranks meet at the address that they have: MASTER_ADDR is set, the starter cannot send another, or
// there is no starter.
static void the_address_is_given(void **state) {
    (void)state;
    static const struct {
        bool unknown, by_mpirun, deaf;
    } cases[] = {{false, true, false}, {true, true, true}, {true, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int port = free_port();
        Rendezvous ranks[2] = {place(0, 2, port), place(1, 2, port)};
        Outcome outcomes[2];
        for (int r = 0; r < 2; r++) {
            ranks[r].master_unknown = cases[i].unknown;
            ranks[r].by_mpirun = cases[i].by_mpirun;
        }
        page->deaf = cases[i].deaf;
        run_ranks(ranks, 2, LONG_S, outcomes);
        for (int r = 0; r < 2; r++) assert_string_equal(outcomes[r].message, "");
        assert_int_equal(sync_load(&page->told), 0);
    }
}

// An address that no host has (RFC 5737): rank 0 cannot listen there.
static void others_repeat_rank_0s_error(void **state) {
    (void)state;
    Rendezvous ranks[2] = {started(0, 2), started(1, 2)};
    Outcome outcomes[2];
    strcpy(ranks[0].master_addr, "192.0.2.1");
    run_ranks(ranks, 2, LONG_S, outcomes);
    for (int r = 0; r < 2; r++) assert_outcome(&outcomes[r], "192.0.2.1");
    assert_string_equal(outcomes[0].message, outcomes[1].message);
}

static void rank_0_says_something_else(void **state) {
    (void)state;
    static const char *const told[][2] = {{"", "rank 0 said nothing"},
                                          {"ok 127.0.0.1 1234", "rank 0 said nothing"},
                                          {"error", "rank 0 said nothing"},
                                          {"error it broke", "it broke"}};
    sync_store(&page->told, 1);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        Rendezvous rank = started(1, 2);
        Outcome outcome;
        strcpy(page->text, told[i][0]);
        run_ranks(&rank, 1, LONG_S, &outcome);
        assert_string_equal(outcome.message, told[i][1]);
    }
}

static void expect_refusal(const Rendezvous *rank, const char *says) {
    Outcome outcome;
    run_ranks(rank, 1, LONG_S, &outcome);
    assert_outcome(&outcome, says);
}

static void starters_that_do_not_help(void **state) {
    (void)state;
    Rendezvous rank = started(0, 2);
    page->refuses = true;
    expect_refusal(&rank, "the starter refuses rank 0");
    page->refuses = false;
    page->deaf = rank.several_hosts = true;
    expect_refusal(&rank, "the ranks are on several hosts: set MASTER_ADDR to rank 0's host");
    rank.by_mpirun = page->deaf = false; // the starter is not called
    expect_refusal(&rank, "the ranks are on several hosts");
    // The starter is not called in a world of one rank.
    Outcome outcome;
    page->refuses = true;
    rank = started(0, 1);
    run_ranks(&rank, 1, LONG_S, &outcome);
    assert_string_equal(outcome.message, "");
}

static void ranks_outside_of_the_world(void **state) {
    (void)state;
    static const int bad[][2] = {{2, 2}, {-1, 2}, {0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const Rendezvous rank = place(bad[i][0], bad[i][1], 0);
        expect_refusal(&rank, "expected 0 <= rank < world");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_meet_where_rank_0_says, setup, teardown),
        cmocka_unit_test_setup_teardown(rank_0_says_its_own_address, setup, teardown),
        cmocka_unit_test_setup_teardown(the_address_is_given, setup, teardown),
        cmocka_unit_test_setup_teardown(others_repeat_rank_0s_error, setup, teardown),
        cmocka_unit_test_setup_teardown(rank_0_says_something_else, setup, teardown),
        cmocka_unit_test_setup_teardown(starters_that_do_not_help, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_outside_of_the_world, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
