/* mpi_internal.h: the structs of the mpi backend, and the calls between its files.
 *
 *     pg_mpi.c     groups, shared memory, the backend's table
 *     process.c    MPI in this process: start, checks, end
 *     mpi_wait.c   how ranks wait for each other, and the errors of waits
 *     mpi_moves.c  the collectives as messages
 *     hosts.c      the all-reduce where several ranks share a host
 *
 * A collective has up to three phases. All ranks exchange a header that describes the call: a rank
 * with all headers knows that all ranks have arrived and agree. Then each piece is sent directly to
 * the rank that needs it. In an all-reduce the sums follow.
 *
 * Messages of two collectives cannot be confused: MPI keeps the order of messages of one tag
 * between two ranks.
 *
 * Threads: one at a time, the owner or the communication thread (backend.h); abort: any.
 */
#ifndef DDP_GROUP_MPI_INTERNAL_H
#define DDP_GROUP_MPI_INTERNAL_H

#include <mpi.h>
#include <pthread.h>

#include "ddp/group/backend.h"
#include "ddp/group/call_watch.h"
#include "ddp/group/shm/segment.h"

enum {
    TAG_HEADER, // of a collective
    TAG_DATA,
    TAG_RESULT,  // of hosts.c: complete sums
    TAG_MESSAGE, // the header of a send,
    TAG_CONTENT, // and its bytes
    TAG_SEGMENT, // address of a host's shared memory
    TAG_DONE,    // the sender has finished with the host's buffers
    TAG_FAILURE, // the error that broke the sender's group
    MPI_FAILURE_MAX = 1024,
};

typedef struct MpiHeader {
    PgFingerprint call;
    uint64_t allocation, offset; // of the rank's buffer; allocation 0: private memory
    uint64_t fast;               // pg_use_fast_sums is on: MPI_Allreduce
} MpiHeader;

typedef struct MpiMessage { // the header of a send
    uint64_t count;
    int64_t type;
} MpiMessage;

// The ranks' hosts. `blocked`: rank r is on host r / local_size for all r, and the ranks of each
// host can map each other's memory. Otherwise each rank counts as a host.
typedef struct MpiHosts {
    bool blocked;
    int host, count;            // this rank's host; number of hosts
    int local_rank, local_size; // 0 and 1 unless blocked
} MpiHosts;

// The state of one rank of a group. MPI may write into it while messages are in flight, so that of
// a broken group is never freed.
typedef struct PgMpi {
    MPI_Comm comm; // of this group only
    int rank, world;
    double timeout_s;
    bool fast; // pg_use_fast_sums
    MpiHosts hosts;
    SharedBlocks *allocations; // of pg_shared_alloc; shared by the ranks of a host if hosts.blocked
    const PgCall *call;
    uint64_t moved; // bytes, in this call

    MPI_Request *requests; // [count], in flight
    int *peers;            // [count], the other rank of each request
    int count, room;
    MpiHeader *headers; // [world], the last one of each rank
    MpiMessage message_in, message_out;
    void **sources;         // [world + 1], for reduce_in_rank_order
    void **buffers;         // [world], for hosts.c
    unsigned char *scratch; // [scratch_bytes], grows
    size_t scratch_bytes;

    pthread_mutex_t mutex; // protects the fields below
    bool failed;           // the group is broken
    char message[MPI_FAILURE_MAX];
} PgMpi;

// ---- process.c: 0, or -1 with err filled -------------------------------------------------------

// Checks the return value of an MPI function.
#define MPI(call, err) mpi_settle((call), #call, (err))
int mpi_settle(int result, const char *what, Error *err);

// The functions of pg_opener_mpi that concern the process (backends.h).
bool mpi_started(void);
int mpi_prepare(int rank, int world, double timeout_s, Error *err);
void mpi_tell(char *text, int capacity, double timeout_s);
// Gives this process LINGER_S seconds to end by itself; then calls MPI_Abort.
void mpi_end_soon(void);

// ---- mpi_wait.c: 0, or -1 with err filled ------------------------------------------------------

// Sleeps 50 us between two polls.
void mpi_nap(void);
// Fails if the owner or another rank has broken the group, and at the current call's deadline.
int mpi_check(PgMpi *mpi, Error *err);
// Enqueue a message; mpi_wait waits for all that are in flight.
int mpi_post_send(PgMpi *mpi, const void *data, size_t bytes, int peer, int tag, Error *err);
int mpi_post_receive(PgMpi *mpi, void *data, size_t bytes, int peer, int tag, Error *err);
int mpi_wait(PgMpi *mpi, Error *err);
// Sends this rank's entry of `entries` [count] to the other ranks of its block of `count`
// consecutive ranks, and receives theirs.
int mpi_swap(PgMpi *mpi, void *entries, size_t bytes, int count, int tag, Error *err);
// Begins a collective: returns when all ranks have arrived and agree. allocation 0: this rank's
// buffer is private memory. *direct: all ranks gave the same location in a shared allocation.
int mpi_meet(PgMpi *mpi, uint64_t allocation, uint64_t offset, bool *direct, Error *err);
// Sends the error that broke this rank's group to all ranks.
void mpi_tell_failure(PgMpi *mpi, const char *message);
// Adds `count` inactive requests to or from a peer, and returns the first one's index; and starts
// one.
int mpi_add_requests(PgMpi *mpi, int count, int peer);
int mpi_start_send(PgMpi *mpi, int request, const void *data, int bytes, int tag, Error *err);
int mpi_start_receive(PgMpi *mpi, int request, void *data, int bytes, int tag, Error *err);

// ---- mpi_moves.c -------------------------------------------------------------------------------

// Returns scratch memory of at least so many bytes, valid until the next call.
void *mpi_scratch(PgMpi *mpi, size_t bytes);
// Runs a collective after mpi_meet.
int mpi_move(PgMpi *mpi, Error *err);
int mpi_send(PgMpi *mpi, Error *err);
int mpi_receive(PgMpi *mpi, Error *err);

// ---- hosts.c -----------------------------------------------------------------------------------

// Fills mpi->hosts. Collective; to be called before the group is used.
int mpi_find_hosts(PgMpi *mpi, Error *err);
// Creates a segment with `stride` bytes for each rank of this host. NULL with err filled.
PgShmSegment *mpi_share(PgMpi *mpi, size_t stride, Error *err);
// Runs an all-reduce of buffers that have the same offset in `blocks` on all ranks.
int mpi_host_all_reduce(PgMpi *mpi, const SharedBlocks *blocks, Error *err);

#endif
