/* launch_env.c: a rank's environment: the launcher's own, overridden by these variables.
 *
 *   torchrun's          RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK (the node),
 *                       GROUP_WORLD_SIZE, ROLE_*, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*
 *   one thread a rank   OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1, if several ranks share a node
 *                       and the user has not set them
 *   the launcher's      DDPRUN_STORE=1, DDPRUN_TOKEN, DDPRUN_HEARTBEAT (descriptor of the heartbeat
 *                       page), DDPRUN_COLUMNS (width of the terminal that shows rank 0's stderr; 0:
 *                       none, and for all other ranks: common/base/log.h)
 *   --fake-hosts        DDPRUN_FAKE_HOSTS=1 and NCCL_*
 *
 * Fake hosts: NCCL refuses two ranks on one GPU of one host and identifies the host by NCCL_HOSTID.
 * With its own NCCL_HOSTID each rank communicates over the network, here the loopback device. The
 * other NCCL_ variables turn off transports that work only between real hosts, and reduce NCCL's
 * use of the GPU, which the ranks share in turn.
 *
 * The variables are set in the launcher's own environment, which the next rank inherits. Each is
 * set again for each rank or is the same for all. Only the main thread reads the environment.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ddp/launch/launch.h"

// replace: overrides the user's value.
static void set(const char *name, const char *value, bool replace) {
    CHECK(setenv(name, value, replace) == 0, "no memory for %s", name);
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    set(name, text, true);
}

static void set_fake_hosts(int rank, int port) {
    static const char *const settings[][2] = {
        {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NET", "Socket"},     {"NCCL_IB_DISABLE", "1"},
        {"NCCL_P2P_DISABLE", "1"},  {"NCCL_SHM_DISABLE", "1"},  {"NCCL_SOCKET_IFNAME", "lo"},
        {"NCCL_NVLS_ENABLE", "0"},  {"NCCL_ALGO", "Ring"},      {"NCCL_PROTO", "Simple"},
        {"NCCL_MAX_CTAS", "2"},     {"DDPRUN_FAKE_HOSTS", "1"},
    };
    char host[48];
    snprintf(host, sizeof host, "ddprun%d-%d", port, rank);
    set("NCCL_HOSTID", host, true);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        set(settings[i][0], settings[i][1], false);
}

void launch_say_threads(Launch *launch) {
    bool omp = !getenv("OMP_NUM_THREADS"), blas = !getenv("OPENBLAS_NUM_THREADS");
    int ranks = launch->options->local_ranks;
    if (ranks == 1 || (!omp && !blas)) return;
    output_say(launch->output,
               "%s%s%s: set to 1 for each of the %d ranks, so that they share the cores; a value "
               "of your own is kept",
               omp ? "OMP_NUM_THREADS" : "", omp && blas ? " and " : "",
               blas ? "OPENBLAS_NUM_THREADS" : "", ranks);
}

void launch_env_set(const Launch *launch, int local_rank) {
    const LaunchOptions *o = launch->options;
    const int rank = launch->ranks[local_rank].rank, world_size = launch->nodes * o->local_ranks;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", local_rank);
    set_number("WORLD_SIZE", world_size);
    set_number("LOCAL_WORLD_SIZE", o->local_ranks);
    set_number("GROUP_RANK", launch->node);
    set_number("GROUP_WORLD_SIZE", launch->nodes);
    set("ROLE_NAME", "default", true);
    set_number("ROLE_RANK", rank);
    set_number("ROLE_WORLD_SIZE", world_size);
    set("MASTER_ADDR", o->master_addr, true);
    set_number("MASTER_PORT", launch->port);
    set_number("TORCHELASTIC_RESTART_COUNT", launch->attempt);
    set_number("TORCHELASTIC_MAX_RESTARTS", o->max_restarts);
    set("TORCHELASTIC_RUN_ID", "none", true);
    set("DDPRUN_STORE", "1", true);
    set("DDPRUN_TOKEN", launch->token, true);
    set_number("DDPRUN_HEARTBEAT", launch->board.fd);
    set_number("DDPRUN_COLUMNS", output_bar_columns(launch->output, local_rank));
    if (o->fake_hosts) set_fake_hosts(rank, launch->port);
    if (o->local_ranks == 1) return;
    set("OMP_NUM_THREADS", "1", false);
    set("OPENBLAS_NUM_THREADS", "1", false);
}
