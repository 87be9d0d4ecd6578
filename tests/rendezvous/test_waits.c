/* test_waits.c: the keys of the store for which each rank waits, with their time-outs
 * (ddp/rendezvous/init.c). The clock of the ranks is frozen; a wait that times out advances it and
 * returns at once.
 */
#include "tests/rigs/meeting_ranks.h"

#include <math.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "ddp/group/backends.h"

enum { WAITS_MAX = 8 };

typedef struct Wait {
    char key[24]; // "": end of the list
    double seconds;
} Wait;

typedef struct Record { // of a rank
    Wait waits[WAITS_MAX];
    int count;
    double clone_s; // time-out of the connection that a group keeps
} Record;

static Record *records;                  // [RANKS_MAX], shared with the ranks' processes
static Record *mine;                     // NULL: this process is no rank
static uint64_t begin_ns;                // of the frozen clock
static _Thread_local uint64_t waited_ns; // by waits that timed out
static bool times_out;                   // a wait for a missing key times out

uint64_t __real_clock_ns(void), __wrap_clock_ns(void);
uint64_t __real_clock_ns_after(double seconds), __wrap_clock_ns_after(double seconds);
int __real_store_wait(Store *store, const char *key, double timeout_s, Error *err);
int __wrap_store_wait(Store *store, const char *key, double timeout_s, Error *err);
Store *__real_store_clone(const Store *store, double timeout_s, Error *err);
Store *__wrap_store_clone(const Store *store, double timeout_s, Error *err);
const PgOpener *__real_pg_backend_find(const char *name, const Device *device, Error *err);
const PgOpener *__wrap_pg_backend_find(const char *name, const Device *device, Error *err);

uint64_t __wrap_clock_ns(void) {
    return mine ? begin_ns + waited_ns : __real_clock_ns();
}

uint64_t __wrap_clock_ns_after(double seconds) {
    if (!mine) return __real_clock_ns_after(seconds);
    return begin_ns + waited_ns + (uint64_t)(seconds * 1e9 + 0.5);
}

int __wrap_store_wait(Store *store, const char *key, double timeout_s, Error *err) {
    if (!mine) return __real_store_wait(store, key, timeout_s, err);
    if (mine->count == WAITS_MAX) _exit(98); // it would wait forever
    Wait *wait = &mine->waits[mine->count++];
    snprintf(wait->key, sizeof wait->key, "%s", key);
    wait->seconds = timeout_s;
    if (!times_out && strcmp(key, "never set") != 0)
        return __real_store_wait(store, key, timeout_s, err);
    if (__real_store_wait(store, key, 0, err) == 0) return 0;
    waited_ns += (uint64_t)(timeout_s * 1e9 + 0.5);
    return -1;
}

Store *__wrap_store_clone(const Store *store, double timeout_s, Error *err) {
    if (mine) mine->clone_s = timeout_s;
    return __real_store_clone(store, timeout_s, err);
}

// ---- A backend whose groups keep the store ----------------------------------------------------

static bool keeps_store;
static PgEndpoint kept;

static ProcessGroup *open_and_keep(PgEndpoint *endpoint, Error *err) {
    kept = *endpoint;
    return pg_opener_shm.open(endpoint, err);
}

const PgOpener *__wrap_pg_backend_find(const char *name, const Device *device, Error *err) {
    static PgOpener keeper;
    if (!keeps_store) return __real_pg_backend_find(name, device, err);
    keeper = pg_opener_shm;
    keeper.keeps_store = true;
    keeper.open = open_and_keep;
    return &keeper;
}

// ---- Ranks ------------------------------------------------------------------------------------

static Outcome live_stopped(const Rendezvous *me, double timeout_s) {
    mine = &records[me->rank];
    begin_ns = __real_clock_ns();
    if (!keeps_store) return live(me, timeout_s);
    Error err = {0};
    ProcessGroup *group = init_process_group("auto", me, NULL, timeout_s, &err);
    if (!group) _exit(97);
    pg_close(group);
    store_close(kept.store);
    kept.leave(kept.context);
    return (Outcome){0};
}

static int setup(void **state) {
    (void)state;
    const size_t bytes = RANKS_MAX * sizeof *records;
    records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    times_out = keeps_store = false;
    return records == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    return munmap(records, RANKS_MAX * sizeof *records);
}

static void forget(void) {
    memset(records, 0, RANKS_MAX * sizeof *records);
}

static void assert_waits(int rank, const Wait wanted[WAITS_MAX]) {
    for (int i = 0; i < WAITS_MAX; i++) {
        const Wait *wait = &records[rank].waits[i];
        if (strcmp(wait->key, wanted[i].key) == 0 && fabs(wait->seconds - wanted[i].seconds) < 1e-6)
            continue;
        fail_msg("rank %d, wait %d: for '%s' %g s, not for '%s' %g s", rank, i, wait->key,
                 wait->seconds, wanted[i].key, wanted[i].seconds);
    }
}

#define WAITS(rank, ...) assert_waits(rank, (const Wait[WAITS_MAX]){__VA_ARGS__})

// ---- Tests ------------------------------------------------------------------------------------

static void live_as_two(double timeout_s, Outcome outcomes[2]) {
    const int port = free_port();
    const Rendezvous ranks[2] = {place(0, 2, port), place(1, 2, port)};
    forget();
    run_lives(ranks, 2, timeout_s, live_stopped, outcomes);
}

// Rank 0, which serves the store, waits for the others to part until its deadline; the others wait
// for at most 2 s until it closes the connection.
static void two_ranks_meet(void **state) {
    (void)state;
    static const double times_s[] = {20, 1.5};
    for (int i = 0; i < 2; i++) {
        const double s = times_s[i];
        Outcome outcomes[2];
        live_as_two(s, outcomes);
        for (int r = 0; r < 2; r++) assert_string_equal(outcomes[r].message, "");
        WAITS(0, {"rank/1", 0.1}, {"attached/1", 0.1}, {"parted", s + 0.1});
        WAITS(1, {"plan", s + 1}, {"go", s + 1}, {"never set", fmin(s + 0.1, 2)});
    }
}

// A group that keeps the store parts when it is closed. Its connection waits for at most 10 s.
static void a_group_keeps_the_store(void **state) {
    (void)state;
    static const double times_s[] = {20, 9.5};
    keeps_store = true;
    for (int i = 0; i < 2; i++) {
        const double s = times_s[i];
        Outcome outcomes[2];
        live_as_two(s, outcomes);
        WAITS(0, {"rank/1", 0.1}, {"attached/1", 0.1}, {"parted", 2});
        WAITS(1, {"plan", s + 1}, {"go", s + 1}, {"never set", 2});
        for (int r = 0; r < 2; r++) assert_true(records[r].clone_s == fmin(s, 10));
    }
}

// Rank 0 waits for the others in slices of 0.1 s, and after an error 0.5 s for them to part.
static void rank_1_is_missing(void **state) {
    (void)state;
    Rendezvous rank = place(0, 2, free_port());
    Outcome outcome;
    times_out = true;
    run_lives(&rank, 1, 0.25, live_stopped, &outcome);
    assert_outcome(&outcome, "rank 1 of 2 has not come within 0.25 s");
    WAITS(0, {"rank/1", 0.1}, {"rank/1", 0.1}, {"rank/1", 0.05}, {"rank/1", 0}, {"rank/1", 0},
          {"parted", 0.5});
}

// Compares the value of a key of the store; "": the key is missing.
static void assert_key(int port, const char *key, const char *wanted) {
    char text[200];
    Error err = {0};
    Store *store = store_connect("127.0.0.1", port, "secret", LONG_S, &err);
    assert_non_null(store);
    assert_int_equal(store_compare_set(store, key, "-", "-", text, sizeof text, &err), 0);
    assert_string_equal(text, wanted);
    store_close(store);
}

static void set_key(int port, const char *key, const char *text) {
    Error err = {0};
    Store *store = store_connect("127.0.0.1", port, "secret", LONG_S, &err);
    assert_non_null(store);
    assert_int_equal(store_set(store, key, text, strlen(text), &err), 0);
    store_close(store);
}

// Writes the card of a rank that never attaches to the group's address.
static void leave_card(int port, int rank, int world) {
    char key[32], host[72], boot[48], namespace[48] = "", text[300];
    machine_name(host, sizeof host);
    machine_boot_id(boot, sizeof boot);
    assert_true(readlink("/proc/self/ns/pid", namespace, sizeof namespace - 1) > 0);
    snprintf(key, sizeof key, "attempt_0/rank/%d", rank);
    snprintf(text, sizeof text, "%d %s %s %s 4711 1 shm -\n", world, host, boot, namespace);
    set_key(port, key, text);
}

// Rank 0's error names all ranks that are missing at the deadline, and is published for the others.
static void ranks_are_missing(void **state) {
    (void)state;
    static const struct {
        int world, present; // the only other rank that leaves its card
        const char *key, *says;
    } cases[] = {{4, 2, "attempt_0/plan", "ranks 1, 3 of 4 have not come within 0.25 s"},
                 {3, 1, "attempt_0/plan", "rank 2 of 3 has not come within 0.25 s"},
                 {2, 1, "attempt_0/go", "rank 1 of 2 has not come within 0.25 s"}};
    times_out = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int port = 0;
        char published[200];
        pid_t server = start_server(&port);
        Rendezvous rank = place(0, cases[i].world, port);
        Outcome outcome;
        rank.launcher_store = true;
        snprintf(rank.token, sizeof rank.token, "secret");
        leave_card(port, cases[i].present, cases[i].world);
        forget();
        run_lives(&rank, 1, 0.25, live_stopped, &outcome);
        assert_string_equal(outcome.message, cases[i].says);
        assert_int_equal(outcome.status, STATUS_FAILED);
        snprintf(published, sizeof published, "error %s", cases[i].says);
        assert_key(port, cases[i].key, published);
        end_server(server);
    }
}

// Rank 1 reads rank 0's error. The last of the other ranks to part sets "parted".
static void rank_0_has_failed(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++) {
        int port = 0;
        pid_t server = start_server(&port);
        Rendezvous rank = place(1, world, port);
        Outcome outcome;
        rank.launcher_store = world == 4; // which outlives the job: ranks do not part
        snprintf(rank.token, sizeof rank.token, "secret");
        set_key(port, "attempt_0/plan", "error it broke");
        forget();
        times_out = true;
        run_lives(&rank, 1, 3, live_stopped, &outcome);
        assert_outcome(&outcome, "it broke");
        if (world < 4)
            WAITS(1, {"plan", 4}, {"never set", 0.5});
        else
            WAITS(1, {"plan", 4});
        assert_key(port, "attempt_0/parting", world < 4 ? "1" : "");
        Error err = {0};
        Store *store = store_connect("127.0.0.1", port, "secret", LONG_S, &err);
        assert_non_null(store);
        assert_int_equal(store_wait(store, "attempt_0/parted", 0, &err), world == 2 ? 0 : -1);
        store_close(store);
        end_server(server);
    }
}

// Rank 0 does not wait for the others after one of them has published an error.
static void rank_1_has_given_up(void **state) {
    (void)state;
    int port = 0;
    pid_t server = start_server(&port);
    Rendezvous rank = place(0, 2, port);
    Outcome outcome;
    rank.launcher_store = true;
    snprintf(rank.token, sizeof rank.token, "secret");
    set_key(port, "attempt_0/plan", "error it broke");
    times_out = true;
    run_lives(&rank, 1, 3, live_stopped, &outcome);
    assert_string_equal(outcome.message, "it broke");
    WAITS(0, {"rank/1", 0.1});
    end_server(server);
}

// A world of one rank waits for no key.
static void none_to_wait_for(void **state) {
    (void)state;
    Rendezvous rank = place(0, 1, free_port());
    Outcome outcome;
    run_lives(&rank, 1, LONG_S, live_stopped, &outcome);
    assert_string_equal(outcome.message, "");
    WAITS(0, {"", 0});
}

#define WITH_RECORDS(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RECORDS(two_ranks_meet),      WITH_RECORDS(a_group_keeps_the_store),
        WITH_RECORDS(rank_1_is_missing),   WITH_RECORDS(ranks_are_missing),
        WITH_RECORDS(rank_0_has_failed),   WITH_RECORDS(none_to_wait_for),
        WITH_RECORDS(rank_1_has_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
