/* backend.h: the interface between a ProcessGroup and its transport. Included by the files of the
 * group (group_internal.h) and by the backends only.
 *
 * The group checks, numbers and orders the calls, owns the communication thread, and keeps the
 * first error. The backend moves the bytes.
 *
 * Threads: one thread at a time calls a backend, the owner or the communication thread, in the
 * order of issue. After a failure only abort and close are called.
 *
 * A backend that enqueues work on a device (nccl) has the functions issue, join and poll. Then the
 * owner's thread calls issue and join, any thread abort, the owner close, after the communication
 * thread has ended, and the communication thread everything else.
 */
#ifndef DDP_GROUP_BACKEND_H
#define DDP_GROUP_BACKEND_H

#include "ddp/group/operation.h"
#include "ddp/group/process_group.h"

// Which missing ranks the error of a barrier names: in PyTorch's words for monitored_barrier the
// first, or all.
typedef enum PgMonitor { MONITOR_NONE, MONITOR_FIRST, MONITOR_ALL } PgMonitor;

// One issued operation. Its arguments are valid; all its waits end at the deadline.
typedef struct PgCall {
    int operation;                // a CollectiveKind's number or a PgInternal
    Collective collective;        // of a PgInternal only the count and the type (PG_U8) count
    uint64_t sequence;            // from 1; 0 for send and receive
    uint64_t issued_ns, begin_ns; // when it was issued, and when it started
    bool on_link;                 // an emulated link needs met_ns
    uint64_t met_ns;              // when all ranks had arrived; 0: unknown
    uint64_t deadline_ns;
    double timeout_s;  // the deadline's, for messages; 0: to be set to the group's
    const int *global; // [size], the ranks in the job, for messages; NULL: identical
    PgMonitor monitor;
    uint64_t record; // id in the flight recorder
    void *object;    // result of a PgInternal: shared memory, or a subgroup's state
    bool dry;        // shared memory that is not to be touched (PgOptions)
    // For backends that enqueue. ticket: their record of the call, from issue to join. in_flight:
    // the device still runs the call after run has returned.
    void *ticket;
    bool in_flight;
    // Set by issue if run records into a graph. Then the caller waits until run has returned,
    // because CUDA lets one thread at a time record.
    bool recorded;
} PgCall;

typedef struct PgBackend {
    const char *name;
    // Runs the collective. Adds to *moved the bytes read from or written to other ranks.
    int (*run)(void *state, PgCall *call, uint64_t *moved, Error *err);
    void *(*shared_alloc)(void *state, const PgCall *call, Error *err);
    // The address of rank `rank`'s counterpart of `mine` in this rank's shared memory; NULL: not
    // accessible.
    void *(*peer_memory)(void *state, const void *mine, int rank); // NULL: none is accessible
    // Creates a group of the call's members. *member, NULL before: its state for this rank, if this
    // rank is one.
    int (*new_subgroup)(void *state, const PgCall *call, void **member, Error *err);
    // Makes the other ranks fail with this message at once, unless they have failed already.
    void (*abort)(void *state, const char *message);
    void (*close)(void *state);
    // Allows all-reduces to add in any order from now on. NULL: the backend has no faster order.
    int (*use_fast_sums)(void *state);

    // For backends that enqueue; NULL otherwise. issue and join run in the owner's thread and do
    // not block. The call begins after the work enqueued on the device before issue; work enqueued
    // after join begins after the call. After a failure join is not called.
    int (*issue)(void *state, PgCall *call, Error *err);
    void (*join)(void *state, PgCall *call);
    // Polls for completion: every millisecond while calls are in flight, ten times a second
    // otherwise. Returns 1 with *done filled for a completed call (and is called again at once), 0
    // if there is none, -1 with err filled on failure. Also called after a failure that another
    // thread found: it then aborts the calls in flight. *busy: calls are in flight.
    int (*poll)(void *state, PgCall *done, bool *busy, Error *err);
} PgBackend;

// Creates the group and takes the backend's state: pg_close closes it. NULL with err filled if the
// options cannot be met; the state then stays the caller's.
ProcessGroup *pg_new(const PgBackend *backend, void *state, int rank, int size,
                     const PgOptions *options, Error *err);

// The properties of a call on which all ranks must agree before it begins. Has no padding, because
// it is compared by memcmp.
typedef struct PgFingerprint {
    uint64_t sequence, count;
    int32_t operation, type, op, root;
} PgFingerprint;
PgFingerprint pg_fingerprint(const PgCall *call);
// Compares rank `rank`'s fingerprint with rank 0's. All ranks compare all fingerprints, so all get
// the same message. Returns 0, or -1 with err filled.
int pg_fingerprint_compare(const PgCall *call, const PgFingerprint *first,
                           const PgFingerprint *other, int rank, Error *err);
// Compares count and type of the message that the call's root sent with the receive of rank `rank`.
// Returns 0, or -1 with err filled.
int pg_message_compare(const PgCall *call, int rank, uint64_t count, int type, Error *err);

#endif
