/* test_init.c: environment variables, and the rendezvous of ranks: success and failures. */
#include "tests/rigs/meeting_ranks.h"

#include <limits.h>
#include <signal.h>

#include "common/base/clock.h"
#include "ddp/group/backends.h"
#include "ddp/rendezvous/heartbeat.h"

// ---- The environment

static int clean(void **state) {
    (void)state;
    clearenv();
    return 0;
}

static void set_all(const char *const pairs[]) { // name, value, name, value, ..., NULL
    clearenv();
    for (size_t i = 0; pairs[i]; i += 2) setenv(pairs[i], pairs[i + 1], 1);
}

#define ENV(...) set_all((const char *const[]){__VA_ARGS__, NULL})

static Rendezvous read_env(void) {
    Rendezvous r;
    Error err = {0};
    if (init_from_env(&r, false, &err) != 0) fail_msg("%s", err.message);
    return r;
}

static void assert_env_error(const char *part) {
    Rendezvous r;
    Error err = {0};
    assert_int_equal(init_from_env(&r, true, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

static void test_torchrun_variables(void **state) {
    (void)state;
    ENV("RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "4", "MASTER_ADDR",
        "10.0.0.7", "MASTER_PORT", "1234", "DDPRUN_TOKEN", "abc", "DDPRUN_STORE", "1",
        "TORCHELASTIC_RESTART_COUNT", "3");
    Rendezvous r = read_env();
    assert_int_equal(r.rank, 5);
    assert_int_equal(r.world_size, 8);
    assert_int_equal(r.local_rank, 1);
    assert_int_equal(r.local_world_size, 4);
    assert_string_equal(r.master_addr, "10.0.0.7");
    assert_int_equal(r.master_port, 1234);
    assert_string_equal(r.token, "abc");
    assert_true(r.launcher_store);
    assert_int_equal(r.restart_count, 3);
    assert_false(r.by_mpirun);
}

static void test_local_defaults(void **state) {
    (void)state;
    ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1");
    Rendezvous r = read_env();
    assert_int_equal(r.local_rank, 1);
    assert_int_equal(r.local_world_size, 2);
    assert_false(r.launcher_store);
    assert_string_equal(r.token, "");
    assert_int_equal(r.restart_count, 0);
    // Four ranks per host: rank 6 is the third on the second host.
    ENV("RANK", "6", "WORLD_SIZE", "8", "LOCAL_WORLD_SIZE", "4", "MASTER_ADDR", "h", "MASTER_PORT",
        "1");
    assert_int_equal(read_env().local_rank, 2);
}

static void test_alone(void **state) {
    (void)state;
    Rendezvous r;
    Error err = {0};
    assert_int_equal(init_from_env(&r, true, &err), 0);
    assert_int_equal(r.rank, 0);
    assert_int_equal(r.world_size, 1);
    assert_int_equal(r.local_rank, 0);
    assert_int_equal(r.local_world_size, 1);
    assert_string_equal(r.master_addr, "127.0.0.1");
    assert_int_equal(init_from_env(&r, false, &err), -1);
    assert_non_null(strstr(err.message, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not"));
}

static void test_missing_are_all_named(void **state) {
    (void)state;
    ENV("RANK", "0", "MASTER_ADDR", "h");
    assert_env_error("env:// needs RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: "
                     "WORLD_SIZE and MASTER_PORT are not set");
    ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h");
    assert_env_error("MASTER_PORT is not set");
    ENV("RANK", "0", "WORLD_SIZE", "", "MASTER_ADDR", "h", "MASTER_PORT", "1"); // empty: missing
    assert_env_error("WORLD_SIZE is not set");
    ENV("MASTER_PORT", "29500");
    assert_env_error("RANK, WORLD_SIZE and MASTER_ADDR are not set");
}

static void test_ranges(void **state) {
    (void)state;
    const char *bad[][2] = {
        {"RANK", "2"},
        {"RANK", "-1"},
        {"RANK", "1x"},
        {"RANK", "99999999999999999999"},
        {"WORLD_SIZE", "0"},
        {"MASTER_PORT", "0"},
        {"MASTER_PORT", "65536"},
        {"LOCAL_RANK", "2"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"TORCHELASTIC_RESTART_COUNT", "-1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1");
        setenv(bad[i][0], bad[i][1], 1);
        assert_env_error(bad[i][0]);
        assert_env_error(bad[i][1]);
    }
    char text[400] = "";
    memset(text, 'a', sizeof text - 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    setenv("DDPRUN_TOKEN", text, 1);
    assert_env_error("DDPRUN_TOKEN is longer than 64");
    setenv("MASTER_ADDR", text, 1);
    assert_env_error("MASTER_ADDR is longer than 255");
    // The last valid value of each.
    const char *good[][2] = {
        {"RANK", "1"},       {"MASTER_PORT", "1"},      {"MASTER_PORT", "65535"},
        {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"},
        {"WORLD_SIZE", "1"}, {"WORLD_SIZE", "1048576"}, {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"RANK", "  1"},     {"LOCAL_RANK", "0"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1");
        setenv(good[i][0], good[i][1], 1);
        Rendezvous r = read_env();
        assert_int_equal(r.several_hosts, i == 5);
    }
    text[STORE_TOKEN_MAX] = '\0';
    setenv("DDPRUN_TOKEN", text, 1);
    assert_string_equal(read_env().token, text);
    memset(text, 'a', 255);
    text[255] = '\0';
    setenv("MASTER_ADDR", text, 1);
    assert_string_equal(read_env().master_addr, text);
    setenv("DDPRUN_STORE", "0", 1);
    assert_false(read_env().launcher_store);
    assert_false(read_env().fake_hosts);
    setenv("DDPRUN_FAKE_HOSTS", "2", 1);
    assert_true(read_env().fake_hosts);
}

static void test_open_mpi_and_pmi(void **state) {
    (void)state;
    ENV("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "4", "PMI_RANK", "0", "PMI_SIZE", "1");
    Rendezvous r = read_env();
    assert_int_equal(r.rank, 3);
    assert_int_equal(r.world_size, 4);
    assert_string_equal(r.master_addr, "127.0.0.1");
    assert_int_equal(r.master_port, 29500);
    assert_true(r.by_mpirun);
    ENV("PMI_RANK", "1", "PMI_SIZE", "2");
    r = read_env();
    assert_true(r.by_mpirun);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.local_world_size, 2);
    setenv("RANK", "0", 1); // torchrun's variables take precedence
    assert_env_error("WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set");
    ENV("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    r = read_env();
    assert_true(r.several_hosts && r.master_unknown);
    Error err = {0}; // shm cannot find rank 0 by itself
    assert_null(init_process_group("shm", &r, NULL, 1, &err));
    assert_non_null(strstr(err.message, "set MASTER_ADDR"));
    setenv("MASTER_ADDR", "node0", 1);
    assert_false(read_env().master_unknown);
}

static void test_slurm(void **state) {
    (void)state;
    ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_LOCALID", "1");
    Rendezvous r = read_env();
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.world_size, 2);
    assert_int_equal(r.local_rank, 1);
    assert_false(r.by_mpirun);
    setenv("SLURM_NNODES", "1", 1);
    assert_false(read_env().several_hosts);
    setenv("SLURM_NNODES", "2", 1);
    assert_true(read_env().several_hosts);
    setenv("SLURM_STEP_NUM_NODES", "1", 1); // the step's; the job has two
    assert_false(read_env().several_hosts);
    unsetenv("SLURM_STEP_NUM_NODES");
    setenv("MASTER_ADDR", "node0", 1);
    assert_string_equal(read_env().master_addr, "node0");
    // With --gpus-per-task=1 each task sees one GPU.
    static const struct {
        const char *binding, *visible;
        bool own;
    } gpus[] = {{"SLURM_GPUS_PER_TASK", "0", true}, {"SLURM_GPUS_PER_TASK", "2,3", false},
                {"SLURM_TRES_PER_TASK", "1", true}, {"SLURM_GPU_BIND", "GPU-1a2b", true},
                {"SLURM_GPUS_PER_TASK", "", false}, {"SLURM_CPUS_PER_TASK", "0", false}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_LOCALID", "1", gpus[i].binding, "1",
            "CUDA_VISIBLE_DEVICES", gpus[i].visible);
        assert_int_equal(read_env().own_gpu, gpus[i].own);
    }
    ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1",
        "SLURM_GPUS_PER_TASK", "1", "CUDA_VISIBLE_DEVICES", "0");
    assert_false(read_env().own_gpu);
    // The batch script itself is not a task.
    ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "2", "SLURM_JOB_ID", "7");
    assert_int_equal(init_from_env(&r, true, &(Error){0}), 0);
    assert_int_equal(r.world_size, 1);
    setenv("SLURM_STEP_ID", "0", 1);
    assert_int_equal(read_env().world_size, 2);
}

// ---- Rendezvous

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

// The launcher no longer reads the phase "init" once the group is open.
static void test_heartbeat_after_a_meeting(void **state) {
    (void)state;
    HeartbeatBoard board;
    Error err = {0};
    char text[16];
    assert_int_equal(heartbeat_board_open(&board, 1, &err), 0);
    snprintf(text, sizeof text, "%d", board.fd);
    setenv("DDPRUN_HEARTBEAT", text, 1);
    Rendezvous me = place(0, 1, free_port());
    ProcessGroup *group = init_process_group("shm", &me, NULL, LONG_S, &err);
    assert_non_null(group);
    HeartbeatView view = heartbeat_board_read(&board, 0);
    assert_string_equal(view.phase, "");
    assert_true(view.beat_ns > 0);
    pg_close(group);
    unsetenv("DDPRUN_HEARTBEAT");
    heartbeat_board_close(&board);
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
    const int bad[][2] = {{-1, 2}, {2, 2}, {0, 0}, {0, -1}, {0, INT_MAX}};
    Rendezvous me;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error err = {0};
        assert_int_equal(init_from_store(&me, store, bad[i][0], bad[i][1], &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
    }
    Error err = {0};
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

// Two rendezvous at the same time, each with missing ranks. (The deadline is long compared with a
// rendezvous on a busy machine.)
static void test_rank_missing(void **state) {
    (void)state;
    enum { DEADLINE_S = 4 };
    const int a = free_port(), b = a + 1;
    Rendezvous ranks[4] = {place(0, 4, a), place(2, 4, a), place(0, 3, b), place(1, 3, b)};
    Outcome outcomes[4];
    run_ranks(ranks, 4, DEADLINE_S, outcomes);
    for (int r = 0; r < 4; r++)
        assert_outcome(&outcomes[r], r < 2 ? "ranks 1, 3 of 4 have not come within 4 s"
                                           : "rank 2 of 3 has not come within 4 s");
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
        cmocka_unit_test_setup(test_torchrun_variables, clean),
        cmocka_unit_test_setup(test_local_defaults, clean),
        cmocka_unit_test_setup(test_alone, clean),
        cmocka_unit_test_setup(test_missing_are_all_named, clean),
        cmocka_unit_test_setup(test_ranges, clean),
        cmocka_unit_test_setup(test_open_mpi_and_pmi, clean),
        cmocka_unit_test_setup(test_slurm, clean),
        cmocka_unit_test(test_meeting),
        cmocka_unit_test(test_heartbeat_after_a_meeting),
        cmocka_unit_test(test_group_of_a_dry_device),
        cmocka_unit_test(test_launchers_store_and_restart),
        cmocka_unit_test(test_callers_store),
        cmocka_unit_test(test_callers_store_twice),
        cmocka_unit_test(test_callers_store_arguments),
        cmocka_unit_test(test_world_size_disagrees),
        cmocka_unit_test(test_rank_missing),
        cmocka_unit_test(test_many_ranks_missing),
        cmocka_unit_test(test_rank_twice),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_nccl_addresses),
        cmocka_unit_test(test_thread_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
