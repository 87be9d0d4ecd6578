/* backend.h: what a transport gives to a ProcessGroup, and the calls that pass between them. Only
 * the parts of the group (internal.h) and the backends include this.
 *
 * The group does what is the same everywhere: it numbers and checks the calls, keeps their order,
 * owns the communication thread, and remembers the first error. The backend moves the bytes. Its
 * functions are called by one thread at a time (the caller's or the communication thread), in the
 * order of issue, and never again after one of them failed, except for abort and close.
 *
 * A backend may only queue the work, on a device that does it later (nccl). Such a backend has the
 * functions issue, join and poll, and then the communication thread makes all calls to it but
 * issue, join and abort (any thread), and close (after that thread has ended).
 */
#ifndef DDP_GROUP_BACKEND_H
#define DDP_GROUP_BACKEND_H

#include "ddp/group/operation.h"
#include "ddp/group/process_group.h"

// A barrier that is monitored names the first rank that is missing, or all, in PyTorch's words.
typedef enum PgMonitor { MONITOR_NONE, MONITOR_FIRST, MONITOR_ALL } PgMonitor;

// One operation on its way: its arguments are valid, and all its waits end at the deadline.
typedef struct PgCall {
    int operation;                // a CollectiveKind's number or a PgInternal
    Collective collective;        // of a PgInternal only the count and the type (PG_U8) count
    uint64_t sequence;            // from 1; 0 for send and receive
    uint64_t issued_ns, begin_ns; // when it was issued, and when it was taken up
    uint64_t met_ns; // when this rank saw all the others in it; 0: the backend does not say
    uint64_t deadline_ns;
    double timeout_s;  // what the deadline was made of, for messages; 0: the group's, not yet set
    const int *global; // [size], the ranks' numbers in the job, for messages; NULL: the same
    PgMonitor monitor;
    uint64_t record; // the flight recorder's
    void *object;    // what a PgInternal made: the shared memory, or the state of a new group
    // For backends that queue. ticket: their own record of the call, from issue to join. in_flight:
    // the device goes on with it after run has returned.
    void *ticket;
    bool in_flight;
    // Set by issue: what run queues is being recorded into a graph, so the caller waits until it is
    // queued: CUDA lets one thread at a time record.
    bool recorded;
} PgCall;

typedef struct PgBackend {
    const char *name;
    // Does the collective, and adds to *moved the bytes read from or written to other ranks.
    int (*run)(void *state, PgCall *call, uint64_t *moved, Error *err);
    void *(*shared_alloc)(void *state, const PgCall *call, Error *err);
    // Rank `rank`'s end of this rank's shared memory at `mine`; NULL: it cannot be reached.
    void *(*peer_memory)(void *state, const void *mine, int rank); // NULL: none can
    // Makes a group of the call's members; *member is its state for this rank, NULL if outside.
    int (*new_subgroup)(void *state, const PgCall *call, void **member, Error *err);
    // This rank has failed: let the others fail with this message at once, unless they have
    // already.
    void (*abort)(void *state, const char *message);
    void (*close)(void *state);
    // From now on all-reduces may add in another order than the ranks'. NULL: there is no faster
    // one.
    int (*use_fast_sums)(void *state);

    // For backends that queue; NULL otherwise. The owner's thread issues and joins: the call begins
    // when what the device was asked before issue is done, and what it is asked after join comes
    // after the call. Neither waits. After a failure there is no join.
    int (*issue)(void *state, PgCall *call, Error *err);
    void (*join)(void *state, PgCall *call);
    // Called every POLL_NS while something is in flight, and now and then when nothing is: 1 with
    // *done filled for a call that has ended (then it is called again at once), 0 if there is none,
    // -1 with err filled on failure. Called also after a failure, when the thread that found it was
    // another: that is the time to stop what is in flight. *busy: something is in flight.
    int (*poll)(void *state, PgCall *done, bool *busy, Error *err);
} PgBackend;

// Makes the group around a backend's state, which it takes: pg_close closes it. NULL with err
// filled if the options cannot be met; then the state stays the caller's.
ProcessGroup *pg_new(const PgBackend *backend, void *state, int rank, int size,
                     const PgOptions *options, Error *err);

// What ranks must agree on before they begin a call.
typedef struct PgFingerprint {
    uint64_t sequence, count;
    int32_t operation, type, op, root;
} PgFingerprint;
PgFingerprint pg_fingerprint(const PgCall *call);
// Compares rank `rank`'s with rank 0's. All ranks compare all, so all come to the same message.
// Returns 0, or -1 with err filled.
int pg_fingerprint_compare(const PgCall *call, const PgFingerprint *first,
                           const PgFingerprint *other, int rank, Error *err);
// Compares a message of the call's root, of so many elements of that type, with what rank `rank`
// receives. Returns 0, or -1 with err filled.
int pg_message_compare(const PgCall *call, int rank, uint64_t count, int type, Error *err);

#endif
