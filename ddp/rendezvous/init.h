/* init.h: how a rank learns who it is and finds the others (PyTorch's init_process_group).
 *
 * env://: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which ddprun and torchrun set; missing
 * ones are all named in one error. Without RANK and WORLD_SIZE, what mpirun (Open MPI, PMI) or srun
 * say counts, and the store's address is 127.0.0.1:29500 unless set. The ranks meet in the store at
 * MASTER_ADDR:MASTER_PORT, which the launcher serves when DDPRUN_STORE is set, else rank 0. With
 * backend mpi and without MASTER_ADDR, rank 0 serves at a free port and says where by MPI.
 *
 * tcp://host:port: the same without the environment; rank 0 serves the store there.
 * A store of the caller's: nothing is served, and nobody is looked for (init_from_store).
 * file:///path: rank 0 serves at a free port, and tells the others where in a file that must not
 * exist before and that the last one removes (ddp/rendezvous/meeting_file.h).
 */
#ifndef DDP_RENDEZVOUS_INIT_H
#define DDP_RENDEZVOUS_INIT_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { INIT_PATH_MAX = 1024 };

typedef struct Rendezvous {
    int rank, world_size, local_rank, local_world_size;
    char master_addr[256];
    int master_port;
    bool master_unknown; // MASTER_ADDR is not set: what stands there is good for one host
    bool several_hosts;  // the starter says so
    char token[STORE_TOKEN_MAX + 1]; // DDPRUN_TOKEN; "" without a launcher
    bool launcher_store;             // the launcher serves the store
    bool fake_hosts;                 // ranks may share a GPU (ddprun --fake-hosts)
    int restart_count;
    char file_path[INIT_PATH_MAX]; // file:// only: where to meet instead; else ""
    Store *store;                  // the caller's, in which to meet instead; else NULL
} Rendezvous;

// Reads the environment. Without any of the four variables and with alone_is_fine, a world of one.
int init_from_env(Rendezvous *rendezvous, bool alone_is_fine, Error *err);

// Reads PyTorch's init_method: "env://", "tcp://host:port" or "file:///path". rank and world_size
// are arguments or, where these are -1, stand in the URL: "?rank=0&world_size=2". (env:// then
// takes the rest from the environment.)
int init_from_url(Rendezvous *rendezvous, const char *url, int rank, int world_size, Error *err);

// The ranks meet in a store that the caller has: PyTorch's init_process_group(store=, rank=,
// world_size=). It stays the caller's: the group uses a connection of its own and leaves the
// store's prefix as it is, with keys behind that prefix. One prefix is good for one group; another
// group needs store_set_prefix first. The store must be served until all ranks have their group,
// with NCCL until all have closed it.
int init_from_store(Rendezvous *rendezvous, Store *store, int rank, int world_size, Error *err);

// Observability comes from the environment: TORCH_DISTRIBUTED_DEBUG (ddp/group/debug_level.h),
// DDPC_FLIGHT_DIR and DDPC_FLIGHT_PIPE (PgOptions), and DDPRUN_HEARTBEAT, by which the launcher
// sees which collective each rank is in. backend: "auto" or the name of one in the list of
// ddp/group/backends.c; auto is the first that can reach the device. device: where the ranks'
// tensors are (it must outlive the group), whose emulated link becomes the group's; NULL: host
// memory. timeout_s: the deadline of every collective.
ProcessGroup *init_process_group(const char *backend, const Rendezvous *rendezvous, Device *device,
                                 double timeout_s, Error *err);

// The same group for `world` threads of this process: groups[r] is for the thread that plays rank
// r.
int init_thread_groups(int world, double timeout_s, ProcessGroup **groups, Error *err);

#endif
