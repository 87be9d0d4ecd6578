/* launch_env.h: a rank's environment: the launcher's own, overridden by these variables.
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
 */
#ifndef DDP_LAUNCH_LAUNCH_ENV_H
#define DDP_LAUNCH_LAUNCH_ENV_H

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
    size_t terminal_columns; // of the terminal with this rank's progress bar; 0: none
} LaunchEnv;

// The thread variables that each rank gets with value 1, "A and B"; NULL: none.
const char *launch_env_threads(int local_ranks);
char **launch_env_make(const LaunchEnv *facts); // [..., NULL], for launch_env_free
void launch_env_free(char **environment);

#endif
