/* init.h: how a rank learns who it is and finds the others (PyTorch's init_process_group).
 *
 * env://: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which ddprun and torchrun set; missing
 * ones are all named in one error. The ranks meet in the store at MASTER_ADDR:MASTER_PORT, which
 * the launcher serves when DDPRUN_STORE is set, and rank 0 serves otherwise.
 */
#ifndef DDP_INIT_H
#define DDP_INIT_H

#include "ddp/process_group.h"
#include "ddp/store.h"

typedef struct Rendezvous {
    int rank, world_size, local_rank, local_world_size;
    char master_addr[256];
    int master_port;
    char token[STORE_TOKEN_MAX + 1]; // DDPRUN_TOKEN; "" without a launcher
    bool launcher_store;             // the launcher serves the store
    int restart_count;
} Rendezvous;

// Reads the environment. Without any of the four variables and with alone_is_fine, a world of one.
int init_from_env(Rendezvous *rendezvous, bool alone_is_fine, Error *err);

// backend: "auto" or "shm". timeout_s: the deadline of every collective.
ProcessGroup *init_process_group(const char *backend, const Rendezvous *rendezvous,
                                 double timeout_s, Error *err);

// The same group for `world` threads of this process: groups[r] is for the thread that plays rank
// r.
int init_thread_groups(int world, double timeout_s, ProcessGroup **groups, Error *err);

#endif
