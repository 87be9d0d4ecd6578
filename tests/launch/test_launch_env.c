/* test_launch_env.c: a rank's environment variables, and the note about its threads
 * (ddp/launch/launch_env.c).
 */
#include "tests/rigs/check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/launch/launch.h"

static char said[400];

void output_say(Output *output, const char *format, ...) {
    va_list arguments;
    (void)output;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
}

int output_bar_columns(const Output *output, int local_rank) {
    (void)output;
    return 70 + local_rank;
}

static LaunchOptions options;
static Launch launch;

static int begin(void **state) {
    (void)state;
    static LaunchedRank ranks[3];
    clearenv();
    said[0] = '\0';
    options = (LaunchOptions){.local_ranks = 3, .master_addr = "10.1.2.3", .max_restarts = 9};
    launch = (Launch){.options = &options, .ranks = ranks, .node = 4, .nodes = 5, .port = 1234};
    launch.board.fd = 17;
    launch.attempt = 6;
    strcpy(launch.token, "secret");
    for (int r = 0; r < 3; r++) ranks[r].rank = 12 + r;
    return 0;
}

// Compares variables, given as {name, value}; "": unset.
static void assert_set(const char *const pairs[][2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(pairs[i][0]);
        if (strcmp(value ? value : "", pairs[i][1]) != 0)
            fail_msg("%s is '%s'", pairs[i][0], value ? value : "");
    }
}

#define HAS(...)                                      \
    assert_set((const char *const[][2]){__VA_ARGS__}, \
               sizeof((const char *const[][2]){__VA_ARGS__}) / sizeof(const char *const[2]))

// The launcher's own variables, such as those of an outer job, have no influence.
static void test_variables(void **state) {
    (void)state;
    static const char *const outer[] = {"RANK",
                                        "LOCAL_RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",
                                        "ROLE_NAME",
                                        "ROLE_RANK",
                                        "ROLE_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "TORCHELASTIC_MAX_RESTARTS",
                                        "TORCHELASTIC_RUN_ID",
                                        "DDPRUN_STORE",
                                        "DDPRUN_TOKEN",
                                        "DDPRUN_HEARTBEAT",
                                        "DDPRUN_COLUMNS"};
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) setenv(outer[i], "outer", 1);
    launch_env_set(&launch, 2);
    HAS({"RANK", "14"}, {"LOCAL_RANK", "2"}, {"WORLD_SIZE", "15"}, {"LOCAL_WORLD_SIZE", "3"},
        {"GROUP_RANK", "4"}, {"GROUP_WORLD_SIZE", "5"}, {"ROLE_NAME", "default"},
        {"ROLE_RANK", "14"}, {"ROLE_WORLD_SIZE", "15"}, {"MASTER_ADDR", "10.1.2.3"},
        {"MASTER_PORT", "1234"}, {"TORCHELASTIC_RESTART_COUNT", "6"},
        {"TORCHELASTIC_MAX_RESTARTS", "9"}, {"TORCHELASTIC_RUN_ID", "none"}, {"DDPRUN_STORE", "1"},
        {"DDPRUN_TOKEN", "secret"}, {"DDPRUN_HEARTBEAT", "17"}, {"DDPRUN_COLUMNS", "72"},
        {"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"NCCL_HOSTID", ""},
        {"DDPRUN_FAKE_HOSTS", ""});
    launch_env_set(&launch, 0); // another rank in the same environment
    HAS({"RANK", "12"}, {"LOCAL_RANK", "0"}, {"ROLE_RANK", "12"}, {"DDPRUN_COLUMNS", "70"});
    launch.attempt = -2147483647; // has the most digits
    launch_env_set(&launch, 0);
    HAS({"TORCHELASTIC_RESTART_COUNT", "-2147483647"});
}

static void test_fake_hosts(void **state) {
    (void)state;
    options.fake_hosts = true;
    setenv("NCCL_HOSTID", "mine", 1);
    setenv("NCCL_PROTO", "mine", 1);
    for (int r = 0; r < 2; r++) {
        launch_env_set(&launch, r);
        HAS({"NCCL_HOSTID", r == 0 ? "ddprun1234-12" : "ddprun1234-13"}, {"NCCL_PROTO", "mine"},
            {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NET", "Socket"}, {"NCCL_IB_DISABLE", "1"},
            {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"},
            {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ALGO", "Ring"}, {"NCCL_MAX_CTAS", "2"},
            {"DDPRUN_FAKE_HOSTS", "1"});
    }
}

// Several ranks get one thread each, unless the user has set a number; a note says so.
static void test_threads(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *omp, *blas; // the user's variables; NULL: unset
        const char *names;      // variables named in the note; "": no note
    } cases[] = {{1, NULL, NULL, ""},
                 {2, NULL, NULL, "OMP_NUM_THREADS and OPENBLAS_NUM_THREADS"},
                 {2, "4", NULL, "OPENBLAS_NUM_THREADS"},
                 {2, NULL, "5", "OMP_NUM_THREADS"},
                 {2, "4", "5", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[300] = "";
        begin(NULL);
        options.local_ranks = cases[i].ranks;
        if (cases[i].omp) setenv("OMP_NUM_THREADS", cases[i].omp, 1);
        if (cases[i].blas) setenv("OPENBLAS_NUM_THREADS", cases[i].blas, 1);
        launch_say_threads(&launch);
        if (*cases[i].names)
            snprintf(
                wanted, sizeof wanted,
                "%s: set to 1 for each of the 2 ranks, so that they share the cores; a value of "
                "your own is kept",
                cases[i].names);
        assert_string_equal(said, wanted);
        launch_env_set(&launch, 0);
        const char *rest = cases[i].ranks == 1 ? "" : "1";
        HAS({"OMP_NUM_THREADS", cases[i].omp ? cases[i].omp : rest},
            {"OPENBLAS_NUM_THREADS", cases[i].blas ? cases[i].blas : rest});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_variables, begin),
        cmocka_unit_test_setup(test_fake_hosts, begin),
        cmocka_unit_test_setup(test_threads, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
