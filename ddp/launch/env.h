/* env.h: the environment of a rank: the launcher's own, with torchrun's variables on top.
 *
 * RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK (the node), GROUP_WORLD_SIZE, ROLE_*,
 * MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*; OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 if several
 * ranks share a node and the user has not set them; and DDPRUN_STORE=1, DDPRUN_TOKEN and
 * DDPRUN_HEARTBEAT, by which a rank finds the launcher's store and heartbeat page. DDPRUN_COLUMNS
 * tells rank 0 that its stderr, a pipe, leads to a terminal of that width (common/base/log.h); it
 * is 0 where there is none, and for all other ranks.
 *
 * Fake hosts: NCCL refuses two ranks on one GPU of one host, and takes NCCL_HOSTID for the host's
 * identity. With another identity for each rank they talk over the network, here the loopback
 * device; the other NCCL_ variables keep it from trying what only works between real hosts, and
 * make it as small as possible, because ranks that share a GPU take turns on it.
 * DDPRUN_FAKE_HOSTS=1 tells the ranks.
 */
#ifndef DDP_LAUNCH_ENV_H
#define DDP_LAUNCH_ENV_H

#include <stdbool.h>
#include <stddef.h>

typedef struct LaunchEnv {
    int rank, local_rank, world_size, local_world_size;
    int node, nodes;
    const char *master_addr;
    int master_port;
    int restart_count, max_restarts;
    const char *token;
    int heartbeat_fd;
    bool fake_hosts;
    size_t terminal_columns; // where this rank's progress bar is shown; 0: nowhere
} LaunchEnv;

// The variables of which each rank gets 1 because the user has not set them, "A and B"; NULL: none.
const char *launch_env_threads(int local_ranks);
char **launch_env_make(const LaunchEnv *facts); // ends with NULL; launch_env_free it
void launch_env_free(char **environment);

#endif
