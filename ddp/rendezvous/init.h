/* init.h: the rendezvous: rank, world size and address from the environment or a URL, and the
 * process group (PyTorch's init_process_group).
 *
 *   source            rank and world size            server of the store and its address
 *   env://            RANK, WORLD_SIZE (ddprun and   the launcher if DDPRUN_STORE is set, else
 *                     torchrun set them)             rank 0, at MASTER_ADDR:MASTER_PORT
 *                     else mpirun's (Open MPI, PMI)  the same; 127.0.0.1:29500 unless set
 *                     or srun's variables
 *   tcp://host:port   arguments or URL               rank 0 at host:port
 *   file:///path      arguments or URL               rank 0 at a free port, written to the file:
 *                                                    it must not exist before, and the last rank
 *                                                    removes it
 *   init_from_store   arguments                      the caller
 *
 * Variables that are missing are all named in one error. Under mpirun and without MASTER_ADDR, rank
 * 0 serves at a free port and broadcasts it by MPI, with backends mpi and shm: ranks with different
 * backends meet and fail with an error that names both.
 */
#ifndef DDP_RENDEZVOUS_INIT_H
#define DDP_RENDEZVOUS_INIT_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { INIT_PATH_MAX = 1024, INIT_ALIKE_MAX = 8192, INIT_WORLD_MAX = 1 << 20 };

typedef struct Rendezvous {
    int rank, world_size, local_rank, local_world_size;
    char master_addr[256];
    int master_port;
    bool master_unknown;             // MASTER_ADDR is not set: the default reaches one host only
    bool several_hosts;              // according to the starter
    bool by_mpirun;                  // rank and world size are mpirun's
    char token[STORE_TOKEN_MAX + 1]; // DDPRUN_TOKEN; "" without a launcher
    bool launcher_store;             // the launcher serves the store
    bool fake_hosts;                 // ranks may share a GPU (ddprun --fake-hosts)
    bool own_gpu;                    // srun gives each task one GPU, cuda:0 in each
    int restart_count;
    char file_path[INIT_PATH_MAX]; // file:// only; else ""
    Store *store;                  // the caller's (init_from_store); else NULL
    // Settings that must be equal on all ranks, filled by the program: lines "NAME VALUE\n". If one
    // differs, no rank gets a group, and the error names both values. "": no check.
    char alike[INIT_ALIKE_MAX];
} Rendezvous;

// Reads the environment. 0, or -1 with err filled. alone_is_fine: without any of the four variables
// the result is a world of one.
int init_from_env(Rendezvous *rendezvous, bool alone_is_fine, Error *err);

// Parses PyTorch's init_method: "env://", "tcp://host:port" or "file:///path". rank and world_size:
// -1 if they are in the URL, "?rank=0&world_size=2" (or, with env://, in the environment). 0, or -1
// with err filled.
int init_from_url(Rendezvous *rendezvous, const char *url, int rank, int world_size, Error *err);

// For a rendezvous in the caller's store: PyTorch's init_process_group(store=, rank=, world_size=).
// 0, or -1 with err filled. The store remains the caller's: the group has a connection of its own
// and writes keys behind the store's prefix. Each group needs a prefix of its own
// (store_set_prefix). The store must be served until all ranks have their group, with NCCL until
// all have closed it.
int init_from_store(Rendezvous *rendezvous, Store *store, int rank, int world_size, Error *err);

// Returns the group of all ranks, the caller's, for pg_close; NULL with err filled. Collective.
//
//   backend     "shm", "mpi", "nccl", or "auto": the first that can reach the device
//   device      of the ranks' tensors; must outlive the group, which uses its emulated link.
//               NULL: host memory
//   timeout_s   of the rendezvous and of every collective
//
// Reads from the environment TORCH_DISTRIBUTED_DEBUG, DDPC_FLIGHT_DIR and DDPC_FLIGHT_PIPE
// (PgOptions), and DDPRUN_HEARTBEAT, by which the launcher sees each rank's collective.
ProcessGroup *init_process_group(const char *backend, const Rendezvous *rendezvous, Device *device,
                                 double timeout_s, Error *err);

// A group of `world` threads of this process: groups[r] [world] is for the thread of rank r. 0, or
// -1 with err filled.
int init_thread_groups(int world, double timeout_s, ProcessGroup **groups, Error *err);

#endif
