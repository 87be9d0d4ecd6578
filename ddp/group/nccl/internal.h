/* internal.h: what the files of the nccl backend share.
 *
 *     pg_nccl.c               the group: tickets, shared memory, the backend's table
 *     communicator.c  communicators: made, ended, aborted
 *     calls.c         the collectives as NCCL calls, and buffers in host memory
 *     wait.c          waiting, and what is said when it was in vain
 *     guard.c         waiting for a call that blocks, by another thread
 *     scale.cu        averages
 *
 * Threads: NCCL is called by one thread, first by the owner (while the group is opened), then by
 * the communication thread, and at last by the owner again (when that thread has ended). The owner
 * otherwise touches tickets, under the mutex, and the events in those it holds.
 *
 * Order: collectives run on a stream beside the device's compute stream. A Ticket holds the two
 * events that order one collective with the compute stream: `begin`, recorded there when the call
 * was issued, and `end`, for which the compute stream waits once the owner has joined it. Neither
 * thread waits for them. A host buffer is different: its data is there when `run` returns.
 */
#ifndef DDP_GROUP_NCCL_INTERNAL_H
#define DDP_GROUP_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>

#include "common/device/cuda/device.h"
#include "ddp/group/backend.h"
#include "ddp/group/nccl/pg_nccl.h"

enum { NCCL_NAME_MAX = 64, NCCL_KEY_MAX = 128, NCCL_AT_MAX = PG_DESCRIPTION_MAX + 24 };

typedef struct Ticket Ticket;
struct Ticket {
    PgCall call; // a copy, while it is in flight
    cudaEvent_t begin, end;
    bool captured;                // recorded into a graph: its events must not be asked
    bool host_send, host_receive; // which buffers are in host memory
    int holders;                  // of: owner until join, communication thread until the end
    Ticket *next;                 // in flight, or unused
    Ticket *made_before;
};

// Room on the device and in pinned memory for a host buffer; grows.
typedef struct Stage {
    void *device, *host;
    size_t bytes;
} Stage;

typedef struct Guard Guard; // guard.c

typedef struct Region Region; // one pg_shared_alloc
struct Region {
    void *memory;
    void *handle; // NCCL's registration; NULL: none
    Region *next;
};

typedef struct PgNccl { // one rank's end of a group
    Device *device;
    CudaDevice *cuda;
    cudaStream_t stream;
    ncclComm_t communicator; // NULL once it was aborted
    int rank, world;
    double timeout_s;
    Guard *guard;             // NULL unless the communicator blocks (NCCL_COMM_BLOCKING=1)
    bool detail;              // debug level DETAIL: calls are compared
    char name[NCCL_NAME_MAX]; // of the group, in the store's keys
    PgNcclPlace place;
    Region *regions;

    // The communication thread's:
    const PgCall *call; // what it is about now
    Stage send, receive;
    cudaEvent_t staged;     // the end of a call with host buffers
    Ticket *first, *last;   // in flight, in order
    bool store_lost;        // it does not answer any more
    uint64_t looked_ns;     // when the store was last looked at
    char at[NCCL_AT_MAX];   // the last call that was taken up,
    char told[NCCL_AT_MAX]; // and the one that the store knows of

    pthread_mutex_t mutex; // protects what follows
    Ticket *spare, *made;
    bool failed;        // the group is broken: stop what is in flight
    char message[1024]; // why
} PgNccl;

// ---- communicator.c: 0, or -1 with err filled ---------------------------------------

// Makes an NCCL call and checks its result; waits (to the current call's deadline) if it is in
// progress.
#define NCCL(nccl, result, err) \
    (nccl_guard_enter(nccl), nccl_settle((nccl), (result), #result, (err)))
int nccl_settle(PgNccl *nccl, ncclResult_t result, const char *what, Error *err);
int nccl_connect(PgNccl *nccl, const char *address, Error *err);
void nccl_disconnect(PgNccl *nccl); // in peace, if it is possible in time
// Ends whatever the communicator does on the device. Ends the process if that takes too long.
void nccl_abort(PgNccl *nccl, const char *reason);

// ---- guard.c ------------------------------------------------------------------------

// For a communicator that blocks; otherwise there is none, and enter and leave do nothing.
int nccl_guard_open(PgNccl *nccl, Error *err);
void nccl_guard_close(PgNccl *nccl);
// This thread is about to be inside NCCL, and has come out. If it was too late, or something had
// failed, then -1 with err filled: the communicator is gone.
void nccl_guard_enter(PgNccl *nccl);
int nccl_guard_leave(PgNccl *nccl, Error *err);

// ---- calls.c ------------------------------------------------------------------------

bool nccl_is_host(const void *buffer);
// Queues the collective on the group's stream; with host buffers, carries it out.
int nccl_queue(PgNccl *nccl, const PgCall *call, const Ticket *ticket, uint64_t *moved, Error *err);
// All ranks are here.
int nccl_barrier(PgNccl *nccl, Error *err);
void nccl_close_stages(PgNccl *nccl);

// ---- wait.c -------------------------------------------------------------------------

// Anything wrong with the communicator, the other ranks, or the time? call: what is waited for;
// NULL: nothing.
int nccl_look(PgNccl *nccl, const PgCall *call, Error *err);
// Between two looks at something that is waited for since start_ns.
void nccl_wait_a_little(uint64_t start_ns);
int nccl_await_event(PgNccl *nccl, cudaEvent_t event, Error *err);
int nccl_await_stream(PgNccl *nccl, Error *err);
// A call is taken up: for the others' messages; at debug level DETAIL, compares it with theirs.
int nccl_arrive(PgNccl *nccl, const PgCall *call, Error *err);
void nccl_tell_failure(PgNccl *nccl, const char *message);
void nccl_tell_closed(PgNccl *nccl);
// Waits until a key that another rank sets begins with a prefix, to the current call's deadline.
int nccl_read_key(PgNccl *nccl, const char *key, const char *prefix, char *text, size_t capacity,
                  Error *err);

// ---- scale.cu -----------------------------------------------------------------------

// buffer *= 1 / ranks on the group's stream. type: PG_F32 or PG_F64.
void nccl_scale(const PgNccl *nccl, PgType type, void *buffer, size_t count);

#endif
