/* pg_nccl.h: making process groups whose ranks are GPUs, with NCCL (2.19 or later). The rest of the
 * program only sees ddp/group/process_group.h.
 *
 * One rank has one GPU, and no two ranks share one: NCCL refuses that, and so does the meeting
 * (ddp/rendezvous/init.c) before it gets that far, by comparing the ranks' cards. The exception is
 * a job that pretends to have more hosts than it has (ddprun --fake-hosts): for correctness only.
 *
 *     rank 0                                     all
 *     pg_nccl_create(address)                    pg_nccl_card(device, card), compared by rank 0
 *     publish address -------------------------> pg_nccl_open(address, device, ...)
 *
 * What differs from shm:
 *  - sums are taken in an order of NCCL's choice. All ranks get the same bits, but other ones than
 *    with shm, and other ones with other buckets;
 *  - a send is over when the receiver has taken the message: two ranks that both send first and
 *    then receive wait for each other (as with PyTorch);
 *  - ranks compare their calls only at debug level DETAIL: otherwise ranks that disagree find out
 *    at the deadline, with an error that says what each of them called last;
 *  - while a step is recorded into a graph (device.h), its collectives are recorded, too: such ones
 *    must have their buffers on the device. Nobody watches over the collectives of a replay, so
 *    from then on the host waits for the device for the group's timeout only, and ends the process
 *    if that is not enough. All Works must have been waited for before a graph with collectives is
 *    launched, or it overtakes them on some ranks; all ranks launch the graphs that they recorded
 *    together; before each launch the owner asks pg_check_sound, and closes its graphs when it
 *    fails: a communicator that is aborted waits for them; and they are closed before the group.
 *  - groups within the group have communicators of their own, and each has a thread that launches
 *    its collectives: those of two groups reach the device in different orders on different ranks.
 *    Where streams share one of CUDA's queues, the second launched waits for the first on one rank,
 *    and the first for the second on another, for ever. So the backend asks CUDA for as many queues
 *    as it has (load.c), which is enough for eight groups with their streams and NCCL's own, and
 *    a group within the group is refused if CUDA_DEVICE_MAX_CONNECTIONS asks for fewer than eight;
 *  - NCCL_COMM_BLOCKING, NCCL's own variable, says whether its calls may block (1) or not (0, ours
 *    without it). Deadlines hold for either; which is faster is the machine's business.
 *
 * The files here are a shared object, which programs load at the first call (load.c, module.h). A
 * build without NCCL has absent.c in the place of load.c.
 */
#ifndef DDP_GROUP_NCCL_PG_NCCL_H
#define DDP_GROUP_NCCL_PG_NCCL_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { PG_NCCL_ADDRESS_MAX = 257, PG_NCCL_CARD_MAX = 192 };

bool pg_nccl_built(void); // is it part of this build?

// Rank 0: makes the address by which ranks find each other (NCCL's unique id, as text). Works
// without a GPU. Returns 0, or -1 with err filled.
int pg_nccl_create(char address[PG_NCCL_ADDRESS_MAX], Error *err);

// Which GPU this is, in one word: "0000:81:00.0@HOST". Ranks with equal cards would share a GPU.
// Returns 0, or -1 with err filled: NCCL is too old, or the device is no GPU.
int pg_nccl_card(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err);

typedef struct PgNcclPlace {
    const char *address;
    Device *device; // outlives the group
    int rank, world;
    const PgOptions *options; // used by pg_nccl_open only
    // By which ranks tell each other of failures, as long as the group lives. Taken.
    Store *store;
    // Called when the group is closed, after its last use of the store.
    void (*leave)(void *context);
    void *context;
} PgNcclPlace;

// All ranks: meets the others. NULL with err filled; then `leave` was not called, and the store is
// closed.
ProcessGroup *pg_nccl_open(const PgNcclPlace *place, Error *err);

#endif
