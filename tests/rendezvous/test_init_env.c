/* test_init_env.c: the launchers' environment variables, read into a Rendezvous
 * (ddp/rendezvous/init_env.c).
 */
#include "tests/rigs/check.h"

#include <stdlib.h>
#include <string.h>

#include "ddp/rendezvous/init.h"

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
        {"WORLD_SIZE", "1048577"},
        {"MASTER_PORT", "0"},
        {"MASTER_PORT", "65536"},
        {"LOCAL_RANK", "2"},
        {"LOCAL_RANK", "-1"},
        {"LOCAL_WORLD_SIZE", "0"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"TORCHELASTIC_RESTART_COUNT", "-1"},
        {"TORCHELASTIC_RESTART_COUNT", "2147483648"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ENV("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1");
        setenv(bad[i][0], bad[i][1], 1);
        assert_env_error(bad[i][0]);
        assert_env_error(bad[i][1]);
    }
    ENV("RANK", "2", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1");
    assert_env_error("RANK must be a whole number from 0 to 1, and is '2'");
    char text[257] = "";
    memset(text, 'a', STORE_TOKEN_MAX + 1);
    setenv("RANK", "1", 1);
    setenv("DDPRUN_TOKEN", text, 1);
    assert_env_error("DDPRUN_TOKEN is longer than 64 bytes");
    memset(text, 'a', sizeof text - 1);
    setenv("MASTER_ADDR", text, 1);
    assert_env_error("MASTER_ADDR is longer than 255 bytes");
    // The last valid value of each.
    const char *good[][2] = {
        {"RANK", "1"},
        {"MASTER_PORT", "1"},
        {"MASTER_PORT", "65535"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"WORLD_SIZE", "1"},
        {"WORLD_SIZE", "1048576"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"RANK", "  1"},
        {"LOCAL_RANK", "0"},
        {"TORCHELASTIC_RESTART_COUNT", "2147483647"},
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

#define OMPI "OMPI_COMM_WORLD_"
#define STEP "SLURM_PROCID=1 SLURM_NTASKS=2 "

// Each launcher's variables, with values that differ from the defaults, which are computed from
// rank and world size; then without the optional ones.
static void test_launchers(void **state) {
    (void)state;
    static const struct {
        const char *env, *read; // read: rank/world size, local rank/local world size
    } cases[] = {
        {OMPI "RANK=5 " OMPI "SIZE=8 " OMPI "LOCAL_RANK=2 " OMPI "LOCAL_SIZE=4",
         "5/8, 2/4, by mpirun, several hosts"},
        {OMPI "RANK=3 " OMPI "SIZE=4 " OMPI "LOCAL_RANK=1 " OMPI "LOCAL_SIZE=4 PMI_RANK=0 "
              "PMI_SIZE=1",
         "3/4, 1/4, by mpirun"},
        {OMPI "RANK=0 " OMPI "SIZE=1", "0/1, 0/1, by mpirun"},
        {"PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4",
         "5/8, 2/4, by mpirun, several hosts"},
        {"PMI_RANK=1 PMI_SIZE=2", "1/2, 1/2, by mpirun"},
        {"PMI_RANK=0 PMI_SIZE=1 SLURM_JOB_ID=7", "0/1, 0/1, by mpirun"},
        {"SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=1", "2/4, 1/4"},
        {"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=7 SLURM_STEP_ID=0", "0/1, 0/1"},
        // A launcher that sets only one of rank and world size is ignored.
        {OMPI "RANK=3 PMI_SIZE=9 " STEP, "1/2, 1/2"},
        {OMPI "SIZE=8 PMI_RANK=3 " STEP, "1/2, 1/2"},
        // The nodes of the step, else of the job.
        {STEP "SLURM_NNODES=1", "1/2, 1/2"},
        {STEP "SLURM_NNODES=2", "1/2, 1/2, several hosts"},
        {STEP "SLURM_NNODES=2 SLURM_STEP_NUM_NODES=1", "1/2, 1/2"},
        {STEP "SLURM_NNODES=1 SLURM_STEP_NUM_NODES=2", "1/2, 1/2, several hosts"},
        {"PMI_RANK=1 PMI_SIZE=2 SLURM_NNODES=2", "1/2, 1/2, by mpirun, several hosts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char env[200], read[80];
        snprintf(env, sizeof env, "%s", cases[i].env);
        clearenv();
        for (char *pair = strtok(env, " "); pair; pair = strtok(NULL, " ")) putenv(pair);
        const Rendezvous r = read_env();
        snprintf(read, sizeof read, "%d/%d, %d/%d%s%s", r.rank, r.world_size, r.local_rank,
                 r.local_world_size, r.by_mpirun ? ", by mpirun" : "",
                 r.several_hosts ? ", several hosts" : "");
        assert_string_equal(read, cases[i].read);
        assert_true(r.master_unknown);
        assert_string_equal(r.master_addr, "127.0.0.1");
        assert_int_equal(r.master_port, 29500);
        setenv("MASTER_ADDR", "node0", 1);
        setenv("MASTER_PORT", "1234", 1);
        const Rendezvous told = read_env();
        assert_false(told.master_unknown);
        assert_string_equal(told.master_addr, "node0");
        assert_int_equal(told.master_port, 1234);
        clearenv(); // before env ends
    }
}

// One of torchrun's variables takes precedence over a launcher's complete set.
static void test_precedence(void **state) {
    (void)state;
    static const char *const one[][2] = {
        {"RANK", "WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set"},
        {"WORLD_SIZE", "RANK, MASTER_ADDR and MASTER_PORT are not set"},
    };
    for (int i = 0; i < 2; i++) {
        ENV("PMI_RANK", "1", "PMI_SIZE", "2", one[i][0], "1");
        assert_env_error(one[i][1]);
    }
    // shm cannot find rank 0 by itself.
    ENV("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    const Rendezvous r = read_env();
    Error err = {0};
    assert_null(init_process_group("shm", &r, NULL, 1, &err));
    check_message(&err, "set MASTER_ADDR");
}

// A launcher's own variables are named in its errors.
static void test_ranges_of_a_launcher(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"SLURM_PROCID", "2"},
                                         {"SLURM_NTASKS", "0"},
                                         {"SLURM_LOCALID", "2"},
                                         {"SLURM_LOCALID", "x"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2");
        setenv(bad[i][0], bad[i][1], 1);
        assert_env_error(bad[i][0]);
    }
    ENV("PMI_RANK", "1", "PMI_SIZE", "2", "MPI_LOCALNRANKS", "3");
    assert_env_error("MPI_LOCALNRANKS must be a whole number from 1 to 2, and is '3'");
}

// With --gpus-per-task=1 each of srun's tasks sees one GPU.
static void test_own_gpu(void **state) {
    (void)state;
    static const struct {
        const char *binding, *value, *visible;
        bool own;
    } gpus[] = {{"SLURM_GPUS_PER_TASK", "1", "0", true}, {"SLURM_GPUS_PER_TASK", "1", "2,3", false},
                {"SLURM_TRES_PER_TASK", "1", "1", true}, {"SLURM_GPU_BIND", "1", "GPU-1a2b", true},
                {"SLURM_GPUS_PER_TASK", "1", "", false}, {"SLURM_CPUS_PER_TASK", "1", "0", false},
                {"SLURM_GPUS_PER_TASK", "", "0", false}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_LOCALID", "1", gpus[i].binding,
            gpus[i].value, "CUDA_VISIBLE_DEVICES", gpus[i].visible);
        assert_int_equal(read_env().own_gpu, gpus[i].own);
    }
    ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1",
        "SLURM_GPUS_PER_TASK", "1", "CUDA_VISIBLE_DEVICES", "0");
    assert_false(read_env().own_gpu);
}

// The batch script itself is not a task of srun.
static void test_batch_script(void **state) {
    (void)state;
    Rendezvous r;
    ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "2", "SLURM_JOB_ID", "7");
    assert_int_equal(init_from_env(&r, true, &(Error){0}), 0);
    assert_int_equal(r.world_size, 1);
    setenv("SLURM_STEP_ID", "0", 1);
    assert_int_equal(read_env().world_size, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_torchrun_variables, clean),
        cmocka_unit_test_setup(test_local_defaults, clean),
        cmocka_unit_test_setup(test_alone, clean),
        cmocka_unit_test_setup(test_missing_are_all_named, clean),
        cmocka_unit_test_setup(test_ranges, clean),
        cmocka_unit_test_setup(test_launchers, clean),
        cmocka_unit_test_setup(test_precedence, clean),
        cmocka_unit_test_setup(test_ranges_of_a_launcher, clean),
        cmocka_unit_test_setup(test_own_gpu, clean),
        cmocka_unit_test_setup(test_batch_script, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
