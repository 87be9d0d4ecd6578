/* internal.h: what the files of the mpi backend share.
 *
 *     pg_mpi.c    groups, shared memory, the backend's table
 *     process.c   MPI in this process: started, checked, ended; the watchdog
 *     wait.c      how ranks meet and wait, and what is said when it was in vain
 *     moves.c     the collectives as messages
 *     hosts.c     the all-reduce where several ranks share a host
 *
 * A collective has three parts. First all ranks send each other a header: what they are about to
 * do. Whoever has all headers knows that all ranks are here and agree. Then the pieces travel, each
 * straight to the rank that needs it. At last, in an all-reduce, the sums do.
 *
 * Messages of one collective cannot be taken for those of the next: between two ranks MPI keeps the
 * order of messages of one tag. Only one thread at a time is in here (backend.h), except in abort.
 */
#ifndef DDP_GROUP_MPI_INTERNAL_H
#define DDP_GROUP_MPI_INTERNAL_H

#include <mpi.h>
#include <pthread.h>

#include "ddp/group/backend.h"
#include "ddp/group/mpi/pg_mpi.h"
#include "ddp/group/shm/segment.h"

enum {
    TAG_HEADER, // of a collective
    TAG_DATA,
    TAG_RESULT,  // of hosts.c: sums on their way back
    TAG_MESSAGE, // a send's header,
    TAG_CONTENT, // and its bytes
    TAG_SEGMENT, // where a host's shared memory is
    TAG_DONE,    // a rank of the host is done with the others' buffers
    TAG_FAILURE, // why the sender's group has broken
    MPI_FAILURE_MAX = 1024,
};

typedef struct MpiHeader {
    PgFingerprint call;
    uint64_t allocation, offset; // where the rank's buffer lies; 0: in memory of its own
    uint64_t fast;               // it would take MPI's own all-reduce
} MpiHeader;

typedef struct MpiMessage { // what precedes the bytes of a send
    uint64_t count;
    int64_t type;
} MpiMessage;

// One pg_shared_alloc. With a segment it is shared by the ranks of the host.
typedef struct MpiAllocation MpiAllocation;
struct MpiAllocation {
    uint64_t id;           // the sequence number of its pg_shared_alloc: the same on all ranks
    PgShmSegment *segment; // NULL: only `base` is there, and is free()d
    unsigned char *base;   // local rank j's block begins at base + j * stride
    size_t stride;
    MpiAllocation *next;
};

// Where the ranks are. Ranks count as being on one host only if rank r is on host r / local_size
// everywhere, and the ranks of each host can map each other's memory (`blocked`). Otherwise each
// rank is a host.
typedef struct MpiHosts {
    bool blocked;
    int host, count;            // this rank's host, and how many hosts there are
    int local_rank, local_size; // 0 and 1 unless blocked
} MpiHosts;

// One rank's end of a group. MPI may write into what is in here as long as a message is on its way:
// where a group has broken, it is never freed.
typedef struct PgMpi {
    MPI_Comm comm; // its own
    int rank, world;
    double timeout_s;
    bool fast; // pg_use_fast_sums
    MpiHosts hosts;
    MpiAllocation *allocations;
    const PgCall *call;
    uint64_t moved; // bytes, in this call

    MPI_Request *requests; // [count], on their way,
    int *peers;            // [count], and to or from whom
    int count, room;
    MpiHeader own, *headers; // this rank's; [world], the last that came from each
    MpiMessage message_in, message_out;
    void **sources;         // [world + 1], for reduce_in_rank_order
    void **buffers;         // [world], for hosts.c
    unsigned char *scratch; // grows
    size_t scratch_bytes;

    pthread_mutex_t mutex; // protects what follows
    bool failed;           // the group is broken
    char message[MPI_FAILURE_MAX];
} PgMpi;

// ---- process.c: 0, or -1 with err filled -------------------------------------------------------

// Checks what an MPI function has returned.
#define MPI(call, err) mpi_settle((call), #call, (err))
int mpi_settle(int result, const char *what, Error *err);

// Around calls into MPI that wait for others and have no deadline: if mpi_watch_end does not come
// within the seconds, says so and ends the process.
typedef struct MpiWatch MpiWatch;
MpiWatch *mpi_watch_begin(const char *what, double seconds);
void mpi_watch_end(MpiWatch *watch);
// From now on this process has PG_MPI_LINGER_S seconds left in which it may end by itself.
void mpi_end_soon(void);

// ---- wait.c: 0, or -1 with err filled ----------------------------------------------------------

// Sleeps a little, between two looks at something that is waited for.
void mpi_nap(void);
// Has this rank's owner broken the group, or another rank? Is the time over?
int mpi_look(PgMpi *mpi, Error *err);
// Puts a message on its way; mpi_wait waits for all that are.
int mpi_post_send(PgMpi *mpi, const void *data, size_t bytes, int peer, int tag, Error *err);
int mpi_post_receive(PgMpi *mpi, void *data, size_t bytes, int peer, int tag, Error *err);
int mpi_wait(PgMpi *mpi, Error *err);
// Begins a collective: returns when all ranks are here and agree. *direct: all of them named the
// same place of a shared allocation (0: this rank's buffer is in memory of its own).
int mpi_meet(PgMpi *mpi, uint64_t allocation, uint64_t offset, bool *direct, Error *err);
// Tells the others why this rank's group is broken.
void mpi_tell_failure(PgMpi *mpi, const char *message);
// Adds room for `count` requests to or from a peer, none of which is on its way yet, and returns
// the first one's index.
int mpi_add_requests(PgMpi *mpi, int count, int peer);

// ---- moves.c -----------------------------------------------------------------------------------

// Returns memory of at least so many bytes, which is this caller's until the next call.
void *mpi_scratch(PgMpi *mpi, size_t bytes);
// Carries out a collective that all ranks have begun.
int mpi_move(PgMpi *mpi, Error *err);
int mpi_send(PgMpi *mpi, Error *err);
int mpi_receive(PgMpi *mpi, Error *err);

// ---- hosts.c -----------------------------------------------------------------------------------

// Finds out which ranks share a host. Collective; to be called before the group is used.
int mpi_find_hosts(PgMpi *mpi, Error *err);
size_t mpi_whole_pages(size_t bytes); // at least one
// Makes a block for each rank of this host in one piece of memory, of whole pages.
MpiAllocation *mpi_share(PgMpi *mpi, size_t bytes, Error *err);
// The block that holds [buffer, buffer + bytes) of this rank, or NULL.
const MpiAllocation *mpi_find_allocation(const PgMpi *mpi, const void *buffer, size_t bytes);
// Does an all-reduce, where all ranks' buffers lie at the same place of the allocation.
int mpi_host_all_reduce(PgMpi *mpi, const MpiAllocation *allocation, Error *err);

#endif
