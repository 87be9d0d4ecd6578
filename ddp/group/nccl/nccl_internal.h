/* nccl_internal.h: the structs of the nccl backend, and the calls between its files.
 *
 *     pg_nccl.c       the group: tickets, shared memory, the backend's table
 *     communicator.c  communicators: creation, end, abort
 *     calls.c         the collectives as NCCL calls; staging of host buffers
 *     nccl_wait.c     waits, and their errors
 *     nccl_guard.c    a second thread that watches calls of a blocking communicator
 *     scale.cu        averages
 *
 * | thread               | calls                                                                |
 * |----------------------|----------------------------------------------------------------------|
 * | owner                | NCCL while the group is opened and closed; tickets, under the mutex, |
 * |                      | and the events of the tickets that it holds                          |
 * | communication thread | NCCL otherwise                                                       |
 *
 * Order: collectives run on a stream beside the device's compute stream. A ticket's two events
 * order a collective with the compute stream: `begin`, recorded there at issue, and `end`, for
 * which the compute stream waits after the owner's join. No thread blocks on them. Exception: a
 * host buffer holds its data when `run` returns.
 */
#ifndef DDP_GROUP_NCCL_INTERNAL_H
#define DDP_GROUP_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>

#include "common/device/cuda/device.h"
#include "ddp/group/backend.h"
#include "ddp/group/backends.h"

enum { NCCL_KEY_MAX = 48, NCCL_AT_MAX = PG_DESCRIPTION_MAX + 24 };

typedef struct NcclTicket NcclTicket;
struct NcclTicket {
    PgCall call; // a copy, while it is in flight
    cudaEvent_t begin, end;
    bool captured;                // recorded into a graph: its events must not be queried
    bool host_send, host_receive; // the buffer is in host memory
    int holders;      // references: owner until join, communication thread until completion
    NcclTicket *next; // in flight, or unused
    NcclTicket *made_before;
};

// Staging memory for a host buffer, on the device and pinned; grows.
typedef struct NcclStage {
    void *device, *host;
    size_t bytes;
} NcclStage;

typedef struct NcclGuard NcclGuard; // nccl_guard.c

typedef struct NcclRegion NcclRegion; // one pg_shared_alloc
struct NcclRegion {
    void *memory;
    void *handle; // NCCL's registration; NULL: none
    NcclRegion *next;
};

typedef struct PgNccl { // the state of one rank of a group
    Device *device;
    CudaDevice *cuda;
    cudaStream_t stream;
    ncclComm_t communicator; // NULL after an abort
    int rank, world;
    double timeout_s;
    NcclGuard *guard;    // NULL unless the communicator blocks (NCCL_COMM_BLOCKING=1)
    bool detail;         // debug level DETAIL: calls are compared
    PgEndpoint endpoint; // its store has a prefix of the group
    NcclRegion *regions;

    // Of the communication thread:
    const PgCall *call; // current
    NcclStage send, receive;
    cudaEvent_t staged;          // recorded after a call with host buffers
    NcclTicket *first, *last;    // in flight, in order
    bool store_lost;             // it has stopped answering
    uint64_t polled_ns;          // last poll of the store
    char at[NCCL_AT_MAX];        // the last call started
    char published[NCCL_AT_MAX]; // the value of `at` in the store

    pthread_mutex_t mutex; // protects the fields below
    NcclTicket *spare, *made;
    bool failed;        // the group is broken: abort the calls in flight
    char message[1024]; // why
} PgNccl;

// ---- communicator.c: 0, or -1 with err filled --------------------------------------------------

// Checks the result of an NCCL call. Polls a call in progress until it completes, to the deadline
// of the current call.
#define NCCL(nccl, result, err) \
    (nccl_guard_enter(nccl), nccl_settle((nccl), (result), #result, (err)))
// Creates the address of a group: NCCL's unique id, as text. Works without a GPU.
int nccl_create(PgEndpoint *endpoint, Error *err);
// Identifies the GPU in one word: "0000:81:00.0@HOST". Ranks with equal cards share a GPU. Fails if
// NCCL is too old.
int nccl_card(const Device *device, int rank, char card[PG_CARD_MAX], Error *err);
int nccl_settle(PgNccl *nccl, ncclResult_t result, const char *what, Error *err);
int nccl_connect(PgNccl *nccl, const char *address, Error *err);
void nccl_disconnect(PgNccl *nccl); // finalizes; aborts at a deadline
// Aborts the communicator and its work on the device. Ends the process if ncclCommAbort does not
// return in time.
void nccl_abort(PgNccl *nccl, const char *reason);

// ---- nccl_guard.c ------------------------------------------------------------------------------

// Only for a blocking communicator; otherwise there is no guard, and enter and leave have no
// effect.
int nccl_guard_open(PgNccl *nccl, Error *err);
void nccl_guard_close(PgNccl *nccl);
// Called around each NCCL call. leave returns -1 with err filled if the guard has aborted the
// communicator, at a deadline or because of an error.
void nccl_guard_enter(PgNccl *nccl);
int nccl_guard_leave(PgNccl *nccl, Error *err);

// ---- calls.c -----------------------------------------------------------------------------------

bool nccl_is_host(const void *buffer);
// Enqueues the collective on the group's stream. With host buffers: returns after its completion.
int nccl_queue(PgNccl *nccl, const PgCall *call, const NcclTicket *ticket, uint64_t *moved,
               Error *err);
// Waits for all ranks.
int nccl_barrier(PgNccl *nccl, Error *err);
void nccl_close_stages(PgNccl *nccl);

// ---- nccl_wait.c -------------------------------------------------------------------------------

// Fails on an error of the communicator or of another rank, and at the deadline of `call`. call
// NULL: no call is waited for.
int nccl_check(PgNccl *nccl, const PgCall *call, Error *err);
int nccl_await_event(PgNccl *nccl, cudaEvent_t event, Error *err);
int nccl_await_stream(PgNccl *nccl, Error *err);
// Publishes the started call, for the other ranks' errors. At debug level DETAIL also compares it
// with theirs.
int nccl_arrive(PgNccl *nccl, const PgCall *call, Error *err);
void nccl_tell_failure(PgNccl *nccl, const char *message);
void nccl_tell_closed(PgNccl *nccl);
// Waits, to the current call's deadline, until a key that another rank sets begins with a prefix.
int nccl_read_key(PgNccl *nccl, const char *key, const char *prefix, char *text, size_t capacity,
                  Error *err);

// ---- scale.cu ----------------------------------------------------------------------------------

// buffer *= 1 / ranks on the group's stream. type: PG_F32 or PG_F64.
void nccl_scale(const PgNccl *nccl, PgType type, void *buffer, size_t count);

extern const PgOpener pg_nccl_module; // pg_nccl.c; exported to nccl_load.c

#endif
