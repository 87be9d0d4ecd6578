/* pg_nccl.h: process groups whose ranks are GPUs, with NCCL (2.19 or later). Users see
 * ddp/group/process_group.h only.
 *
 * Each rank has a GPU of its own. NCCL rejects ranks that share one, and rendezvous
 * (ddp/rendezvous/init.c) before that, by comparing the ranks' cards. The exception, for
 * correctness only, is ddprun --fake-hosts, which emulates several hosts on one.
 *
 *     rank 0                                     all
 *     pg_nccl_create(address)                    pg_nccl_card(device, card), compared by rank 0
 *     publish address -------------------------> pg_nccl_open(address, device, ...)
 *
 * Differences from shm:
 *  - Sums: in NCCL's order. All ranks get the same bits, but different from shm's and dependent on
 *    the buckets.
 *  - Sends complete when the receiver has received the message: two ranks that both send first and
 *    then receive deadlock (as with PyTorch).
 *  - Calls are compared at debug level DETAIL only. Otherwise a mismatch is an error at the
 *    deadline, which gives the last call of each rank.
 *  - Graphs: collectives of a step that is recorded into a graph (device.h) are recorded too, with
 *    device buffers only. The backend cannot poll them in a replay, so from the first recording on
 *    the host waits for the device for at most the group's timeout, and then ends the process.
 *      - All Works are waited for before a graph with collectives is launched; otherwise the graph
 *        overtakes them on some ranks.
 *      - All ranks launch the graphs that they recorded together.
 *      - Before each launch the owner calls pg_check_sound, and on failure closes its graphs: the
 *        abort of the communicator waits for that. Graphs are closed before the group.
 *  - Subgroups have communicators and threads of their own, so collectives of two groups reach the
 *    device in different orders on different ranks. If their streams shared a hardware queue of
 *    CUDA, they could deadlock. So common/device/cuda/load.c requests CUDA's maximum of queues,
 *    enough for the streams of eight groups and NCCL's own, and creating a subgroup fails if
 *    CUDA_DEVICE_MAX_CONNECTIONS requests fewer than eight.
 *  - NCCL_COMM_BLOCKING (NCCL's variable): 1, its calls block; 0, the default here, they do not.
 *    Deadlines hold in either case.
 *
 * The files here are a shared object that programs load on first use (nccl_load.c, nccl_module.h).
 * A build without NCCL compiles nccl_absent.c instead of nccl_load.c.
 */
#ifndef DDP_GROUP_NCCL_PG_NCCL_H
#define DDP_GROUP_NCCL_PG_NCCL_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { PG_NCCL_ADDRESS_MAX = 257, PG_NCCL_CARD_MAX = 192 };

bool pg_nccl_built(void); // is compiled in

// Rank 0: creates the address of a group (NCCL's unique id, as text). Works without a GPU. Returns
// 0, or -1 with err filled.
int pg_nccl_create(char address[PG_NCCL_ADDRESS_MAX], Error *err);

// Identifies the GPU in one word: "0000:81:00.0@HOST". Ranks with equal cards share a GPU. Returns
// 0, or -1 with err filled: NCCL is too old, or the device is no GPU.
int pg_nccl_card(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err);

typedef struct PgNcclEndpoint {
    const char *address;
    Device *device; // outlives the group
    int rank, world;
    const PgOptions *options; // used by pg_nccl_open only
    // Carries the ranks' errors while the group is open. Taken.
    Store *store;
    // Called when the group is closed, after its last use of the store.
    void (*leave)(void *context);
    void *context;
} PgNcclEndpoint;

// All ranks: connects to the others. NULL with err filled; then `leave` was not called, and the
// store is closed.
ProcessGroup *pg_nccl_open(const PgNcclEndpoint *endpoint, Error *err);

#endif
