/* test_init.c: the rendezvous of ranks: success and failures. */
#include "tests/rigs/meeting_ranks.h"

#include <limits.h>
#include <signal.h>

#include "common/base/clock.h"
#include "ddp/group/backends.h"

static void test_meeting(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++) {
        Rendezvous ranks[RANKS_MAX];
        Outcome outcomes[RANKS_MAX];
        int port = free_port();
        for (int r = 0; r < world; r++) ranks[r] = place(r, world, port);
        run_ranks(ranks, world, LONG_S, outcomes);
        for (int r = 0; r < world; r++) {
            if (outcomes[r].status) fail_msg("rank %d: %s", r, outcomes[r].message);
        }
    }
}

// Tensors of a dry run's device are not stored, so its group's collectives copy nothing.
static void test_group_of_a_dry_device(void **state) {
    (void)state;
    static const char *const names[] = {"cpu:0", "dry-cpu:0"};
    for (int dry = 0; dry < 2; dry++) {
        Error err = {0};
        Rendezvous me = place(0, 1, free_port());
        Device *device = device_open(names[dry], &err);
        assert_non_null(device);
        ProcessGroup *group = init_process_group("shm", &me, device, LONG_S, &err);
        assert_non_null(group);
        float from = 3, to = 0;
        assert_int_equal(pg_run(group, pg_all_gather(&from, &to, 1, PG_F32), &err), 0);
        assert_true(to == (dry ? 0 : 3));
        pg_close(group);
        device_close(device);
    }
}

// file:// in a folder that does not exist: an error on rank 0, which makes the file, and on others.
static void test_file_in_no_folder(void **state) {
    (void)state;
    for (int r = 0; r < 2; r++) {
        Error err = {0};
        Rendezvous me = place(r, 2, 0);
        strcpy(me.file_path, "/no/such/folder/meeting");
        assert_null(init_process_group("shm", &me, NULL, LONG_S, &err));
        assert_non_null(strstr(err.message, "file:///no/such/folder/meeting: "));
        assert_non_null(strstr(err.message, "No such file or directory"));
    }
}

static void test_launchers_store_and_restart(void **state) {
    (void)state;
    int port = 0;
    pid_t server = start_server(&port);
    for (int attempt = 0; attempt < 3; attempt++) { // keys of earlier attempts have no effect
        Rendezvous ranks[2];
        Outcome outcomes[2];
        for (int r = 0; r < 2; r++) {
            ranks[r] = place(r, 2, port);
            ranks[r].launcher_store = true;
            ranks[r].restart_count = attempt;
            snprintf(ranks[r].token, sizeof ranks[r].token, "secret");
        }
        run_ranks(ranks, 2, LONG_S, outcomes);
        for (int r = 0; r < 2; r++) assert_string_equal(outcomes[r].message, "");
    }
    end_server(server);
}

// ---- The caller's store ----

static void fail_with(Outcome *outcome, const char *what, const Error *err) {
    if (outcome->status) return;
    outcome->status = STATUS_FAILED;
    snprintf(outcome->message, sizeof outcome->message, "%s: %.300s", what, err->message);
}

// Two groups through one store, with two prefixes; the store remains the caller's, with its prefix.
static Outcome live_in_store(const Rendezvous *place, double timeout_s) {
    static const char *const prefixes[] = {"first", "second"};
    Error err = {0};
    Outcome outcome = {0};
    Rendezvous me;
    int64_t users = 0;
    Store *store = store_connect("127.0.0.1", place->master_port, "secret", timeout_s, &err);
    for (int i = 0; store && i < 2; i++) {
        store_set_prefix(store, prefixes[i]);
        if (init_from_store(&me, store, place->rank, place->world_size, &err) != 0)
            fail_with(&outcome, "init_from_store", &err);
        if (!outcome.status) outcome = live(&me, timeout_s);
        char said[64] = "";
        const char *key = place->rank > 0 ? "attempt_0/attached/1" : "attempt_0/go";
        if (store_compare_set(store, key, "-", "-", said, sizeof said, &err) != 0 ||
            (place->world_size > 1 && strcmp(said, "ok ") != 0))
            fail_with(&outcome, said, &err);
        if (store_add(store, "users", 1, &users, &err) != 0) fail_with(&outcome, "users", &err);
    }
    if (store) store_set_prefix(store, "");
    int64_t first = 0;
    if (!store || store_add(store, "first/users", 0, &first, &err) != 0 || first < 1)
        fail_with(&outcome, "the store's prefix has changed", &err);
    store_close(store);
    return outcome;
}

static void test_callers_store(void **state) {
    (void)state;
    int port = 0;
    pid_t server = start_server(&port);
    for (int world = 1; world <= 3; world++) {
        Rendezvous ranks[3];
        Outcome outcomes[3];
        for (int r = 0; r < world; r++) ranks[r] = place(r, world, port);
        if (world > 1) { // keys of an earlier job: an error, not a hang
            end_server(server);
            server = start_server(&port);
            for (int r = 0; r < world; r++) ranks[r].master_port = port;
        }
        run_lives(ranks, world, LONG_S, live_in_store, outcomes);
        for (int r = 0; r < world; r++) assert_string_equal(outcomes[r].message, "");
    }
    end_server(server);
}

// A prefix that another group has used before.
static Outcome live_twice(const Rendezvous *place, double timeout_s) {
    Error err = {0};
    Rendezvous me;
    Outcome outcome = {.status = STATUS_FAILED};
    Store *store = store_connect("127.0.0.1", place->master_port, "secret", timeout_s, &err);
    if (!store || init_from_store(&me, store, place->rank, place->world_size, &err) != 0)
        return outcome;
    outcome = live(&me, timeout_s);
    if (!outcome.status) outcome = live(&me, timeout_s);
    store_close(store);
    return outcome;
}

static void test_callers_store_twice(void **state) {
    (void)state;
    int port = 0;
    pid_t server = start_server(&port);
    Rendezvous ranks[2] = {place(0, 2, port), place(1, 2, port)};
    Outcome outcomes[2];
    run_lives(ranks, 2, LONG_S, live_twice, outcomes);
    for (int r = 0; r < 2; r++) {
        assert_outcome(&outcomes[r], "trying to initialize the default process group twice!");
        assert_outcome(&outcomes[r], "under one prefix");
    }
    end_server(server);
}

static void test_callers_store_arguments(void **state) {
    (void)state;
    int dummy = 0;
    Store *store = (Store *)(void *)&dummy; // only compared with NULL
    const int bad[][2] = {{-1, 2}, {2, 2}, {0, 0}, {0, -1}, {0, INIT_WORLD_MAX + 1}};
    Rendezvous me;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error err = {0};
        assert_int_equal(init_from_store(&me, store, bad[i][0], bad[i][1], &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
    }
    Error err = {0};
    assert_int_equal(init_from_store(&me, store, 3, INIT_WORLD_MAX, &err), 0);
    assert_true(me.rank == 3 && me.local_rank == 3 && me.store == store);
    assert_true(me.world_size == INIT_WORLD_MAX && me.local_world_size == INIT_WORLD_MAX);
    assert_int_equal(init_from_store(&me, NULL, 0, 1, &err), -1);
    assert_non_null(strstr(err.message, "there is no store to meet in"));
}

static void test_world_size_disagrees(void **state) {
    (void)state;
    int port = free_port();
    Rendezvous ranks[2] = {place(0, 2, port), place(1, 4, port)};
    Outcome outcomes[2];
    run_ranks(ranks, 2, LONG_S, outcomes);
    for (int r = 0; r < 2; r++) {
        assert_outcome(&outcomes[r], "WORLD_SIZE is 2 at rank 0 and 4 at rank 1");
    }
}

// At most sixteen missing ranks are named, and none before the deadline.
static void test_many_ranks_missing(void **state) {
    (void)state;
    static const char *const says[] = {"15, 16 of 17 have not", "15, 16, ... of 18 have not",
                                       "15, 16, ... of 19 have not"};
    Rendezvous ranks[3];
    Outcome outcomes[3];
    for (int i = 0; i < 3; i++) ranks[i] = place(0, 17 + i, free_port() + i);
    const uint64_t begin = clock_ns();
    run_ranks(ranks, 3, 0.3, outcomes);
    assert_true(clock_ns() - begin >= 300000000);
    for (int i = 0; i < 3; i++) {
        assert_outcome(&outcomes[i], "ranks 1, 2, 3, ");
        assert_outcome(&outcomes[i], says[i]);
    }
}

static void test_rank_twice(void **state) {
    (void)state;
    int port = free_port();
    Rendezvous ranks[3] = {place(0, 3, port), place(1, 3, port), place(1, 3, port)};
    Outcome outcomes[3];
    run_ranks(ranks, 3, LONG_S, outcomes);
    for (int r = 0; r < 3; r++) {
        assert_outcome(&outcomes[r], "two processes say that they are rank 1");
    }
}

static void test_backends(void **state) {
    (void)state;
    Rendezvous me = place(0, 1, 0);
    const char *names[] = {"nccl", "gloo"};
    const int nccl = pg_opener_nccl.built ? STATUS_USAGE : STATUS_SKIPPED; // needs GPU memory
    const int statuses[] = {nccl, STATUS_USAGE};
    for (size_t i = 0; i < 2; i++) {
        Error err = {0};
        assert_null(init_process_group(names[i], &me, NULL, 1, &err));
        assert_int_equal(err.status, statuses[i]);
        assert_non_null(strstr(err.message, names[i]));
    }
}

// Creating NCCL's address needs no GPU.
static void test_nccl_addresses(void **state) {
    (void)state;
    PgEndpoint one = {0}, other = {0};
    Error err = {0};
    if (!pg_opener_nccl.built) skip();
    if (pg_opener_nccl.create(&one, &err) != 0 || pg_opener_nccl.create(&other, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(strlen(one.address), PG_ADDRESS_MAX - 1);
    assert_string_not_equal(one.address, other.address);
}

static void test_thread_groups(void **state) {
    (void)state;
    ProcessGroup *groups[2] = {NULL, NULL};
    Error err = {0};
    assert_int_equal(init_thread_groups(0, LONG_S, groups, &err), -1);
    assert_non_null(strstr(err.message, "rank 0 of a world of 0"));
    assert_int_equal(init_thread_groups(1, 0, groups, &err), -1);
    for (int world = 1; world <= 2; world++) {
        err = (Error){0};
        if (init_thread_groups(world, LONG_S, groups, &err) != 0) fail_msg("%s", err.message);
        for (int r = 0; r < world; r++) {
            assert_int_equal(pg_rank(groups[r]), r);
            assert_int_equal(pg_size(groups[r]), world);
        }
        for (int r = 0; r < world; r++) pg_close(groups[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meeting),
        cmocka_unit_test(test_group_of_a_dry_device),
        cmocka_unit_test(test_file_in_no_folder),
        cmocka_unit_test(test_launchers_store_and_restart),
        cmocka_unit_test(test_callers_store),
        cmocka_unit_test(test_callers_store_twice),
        cmocka_unit_test(test_callers_store_arguments),
        cmocka_unit_test(test_world_size_disagrees),
        cmocka_unit_test(test_many_ranks_missing),
        cmocka_unit_test(test_rank_twice),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_nccl_addresses),
        cmocka_unit_test(test_thread_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
