/* process_group.h: a fixed set of ranks and the collectives between them.
 *
 * A Collective is a value that describes an operation. pg_run runs it and returns when it has
 * completed; pg_start enqueues it for the group's communication thread and returns a PgWork to wait
 * for. Both run in the order in which this rank issued them. Every rank must issue the same
 * collectives in the same order: each carries a sequence number and a fingerprint (kind, count,
 * dtype, op, root), and a mismatch is an error on all ranks that names the ranks, the operations
 * and the sizes.
 *
 * Threads: one thread owns the group and makes all calls, except pg_check_sound, pg_write_flight,
 * pg_abort and pg_totals, which any thread may call.
 *
 * Errors: every wait ends at the group's timeout, with an error that names the missing ranks and
 * the last collective that each of them finished. The first error breaks the group: every further
 * call fails with it.
 *
 * Sums are taken in rank order, ((r0 + r1) + r2) + ..., element by element, independent of count,
 * buffer and timing; PG_AVG multiplies that sum once by 1/W. So the result does not depend on how
 * gradients are cut into buckets, and equals DataParallel's, bit for bit. (Exception: with nccl the
 * order is NCCL's. All ranks get the same bits, but not these.)
 *
 * Subgroups: a group may contain any number of overlapping groups. Each is a ProcessGroup with
 * ranks, sequence numbers and a communication thread of its own, and does not block the others. Its
 * errors name a rank by its number in the subgroup and, in parentheses, in the job: "rank 0 (global
 * 2)".
 *
 * | backend | ranks are                                        |
 * |---------|--------------------------------------------------|
 * | shm     | processes of one host, or threads of one process |
 * | mpi     | processes of several hosts, started by MPI       |
 * | nccl    | GPUs                                             |
 *
 * With nccl, device buffers follow the order of the device's compute stream: a collective begins
 * after the work enqueued before pg_run or pg_start, and work enqueued after pg_run or pg_work_wait
 * begins after the collective. Neither blocks on the device. Host buffers hold the result on
 * return.
 */
#ifndef DDP_GROUP_PROCESS_GROUP_H
#define DDP_GROUP_PROCESS_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "ddp/group/collective.h"

typedef struct DeviceLink DeviceLink; // an emulated network between devices: train_ddp --link
typedef struct Trace Trace;           // the trainer's, for --trace
typedef struct ProcessGroup ProcessGroup;
typedef struct PgWork PgWork;

// Callbacks about this rank's activity: all functions are set, or all are NULL.
typedef struct PgObserver {
    void *context;
    // An operation starts: its sequence number and its name ("all_reduce"). Called by the thread
    // that runs the operation.
    void (*begins)(void *context, uint64_t sequence, const char *name);
    void (*close)(void *context);                                    // with the group
    void (*enters)(void *context, const char *phase, uint64_t step); // pg_enter
    void (*fails)(void *context); // this rank breaks the group, by pg_abort
} PgObserver;

// Options of a group, fixed when it is opened, before the communication thread starts. Subgroups
// inherit timeout_s and flight_folder only.
typedef struct PgOptions {
    double timeout_s; // the deadline of every operation
    PgObserver observer;
    // The flight recorder always records each rank's last operations.
    // When the group breaks, it writes them into flight_folder (NULL or "": nowhere) and, if
    // flight_say, prints the last few on stderr. A write into the named pipe
    // <flight_pipe><rank>.pipe makes the rank write them at once (NULL or "": no pipe).
    const char *flight_folder, *flight_pipe;
    bool flight_say;
    // The ranks' devices store nothing (--dry-run): collectives of float32 and broadcasts of bytes,
    // which move tensors, are the identity; shared memory is reserved (addresses) and not accessed.
    bool dry;
} PgOptions;

int pg_rank(const ProcessGroup *group);
int pg_size(const ProcessGroup *group);
// The rank in the whole job of rank `rank` of this group.
int pg_global_rank(const ProcessGroup *group, int rank);
const char *pg_backend(const ProcessGroup *group); // "shm"
// Collectives issued by this rank so far. Sends and receives are not counted.
uint64_t pg_sequence(const ProcessGroup *group);

// Totals since the group was opened.
typedef struct PgTotals {
    uint64_t moved_bytes;  // that this rank read from or wrote to other ranks
    uint64_t shared_bytes; // of this rank's pg_shared_alloc
    uint64_t bucket_ns;    // spent in collectives of buckets, waiting for other ranks included
} PgTotals;
PgTotals pg_totals(const ProcessGroup *group);
static inline uint64_t pg_moved_bytes(const ProcessGroup *group) {
    return pg_totals(group).moved_bytes;
}

// Runs the collective and waits for its completion. Returns 0, or -1 with err filled.
int pg_run(ProcessGroup *group, Collective collective, Error *err);
// Enqueues the collective. The group owns the buffers until pg_work_wait. Returns the PgWork, to be
// passed to pg_work_wait, or NULL with err filled: the group is broken. At most PG_MAX_WORKS may be
// outstanding.
enum { PG_MAX_WORKS = 1024 };
PgWork *pg_start(ProcessGroup *group, Collective collective, Error *err);
// Waits for the collective and releases the PgWork; a second wait is a failed CHECK. Returns 0, or
// -1 with err filled. begin_ns and end_ns (either may be NULL) receive the clock_ns at which the
// communication thread started it and at which it completed; end_ns is 0 while a device still runs
// it.
int pg_work_wait(PgWork *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err);

// Allocates memory that the other ranks map too, so that collectives work on it without copying it
// in or out. Collective: all ranks pass the same bytes. Zeroed, page aligned; owned by the group
// and freed by pg_close. NULL with err filled.
void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err);

// The address, in this process, of rank `rank`'s counterpart of `mine`, which lies in memory of
// pg_shared_alloc. It may be accessed between two barriers. NULL where a rank cannot access
// another's memory: nccl, mpi, or an emulated link. The caller reports the bytes that it moves by
// pg_count_moved.
void *pg_peer_memory(ProcessGroup *group, const void *mine, int rank);
void pg_count_moved(ProcessGroup *group, uint64_t bytes);

// Creates a subgroup (PyTorch's new_group): ranks[count], in any order, are renumbered in ascending
// order. Collective over the parent, which has at most 64 ranks: all of them pass the same set.
// Returns NULL and no error on a rank outside the set, NULL with err filled on failure, which
// breaks the parent. Parent and subgroup are closed separately, in any order.
ProcessGroup *pg_new_subgroup(ProcessGroup *parent, const int *ranks, int count, Error *err);
// Splits the parent (MPI_Comm_split): ranks of the same color, 0 or more, form a group; a rank with
// a negative color gets NULL and no error. Collective over the parent.
ProcessGroup *pg_split(ProcessGroup *parent, int color, Error *err);

// Reports the program's phase ("train", "evaluate", ..., at most 15 characters) and step to the
// group's observer. Under ddprun the observer is the launcher's heartbeat, which names both if this
// rank fails or falls silent. Not collective and cheap: may be called in every step. group NULL,
// for a program that runs alone: no effect.
void pg_enter(ProcessGroup *group, const char *phase, uint64_t step);

// Returns 0 if the group is sound, -1 with the first error if it is broken. Any thread.
int pg_check_sound(ProcessGroup *group, Error *err);

// Breaks the group because of an error outside it: the other ranks' waits end at once with that
// error, prefixed by this rank. Returns false, without effect, if the group was broken already. Any
// thread.
bool pg_abort(ProcessGroup *group, const Error *cause);

// A barrier with its own timeout (PyTorch's monitored_barrier). At the deadline the error names the
// first missing rank or, if wait_all_ranks, all of them, and the group is broken. group NULL, for a
// rank outside a subgroup: no effect.
int pg_monitored_barrier(ProcessGroup *group, double timeout_s, bool wait_all_ranks, Error *err);

// Writes the flight records into the folder now; folder NULL: as when the group breaks, to where
// the options say. Any thread, also while a collective hangs.
int pg_write_flight(ProcessGroup *group, const char *folder, Error *err);

// Counts a user of the group, such as a wrapper, whose memory or calls need it open: pg_close of a
// group that is held is a failed CHECK. pg_release takes the count back. Owner's thread.
void pg_hold(ProcessGroup *group);
void pg_release(ProcessGroup *group);

// Completes the outstanding calls and closes the group for this rank, without waiting for the other
// ranks: memory of this rank that they map stays valid until they close. NULL: no effect.
// Afterwards every call that communicates fails with an error, and pg_work_wait and a second
// pg_close are failed CHECKs. (The next group that is opened may have this one's address.)
void pg_close(ProcessGroup *group);

// Emulates a network: from now on every collective takes this rank at least as long as over the
// link, by the usual algorithm; the thread that runs it sleeps. All ranks have
// links of the same speed, and subgroups share their parent's. To be called before the first
// pg_start; the link must outlive the group. NULL, the default: no emulation.
void pg_emulate_link(ProcessGroup *group, DeviceLink *link);

// Trades the order of sums for speed: from now on all_reduce adds floats as the backend's library
// does (mpi: MPI_Allreduce). All ranks get the same bits, but different from shm's and dependent on
// the buckets. All ranks must call it before their next collective. Returns -1 with err filled if
// the backend has no faster sum.
int pg_use_fast_sums(ProcessGroup *group, Error *err);

// Records the communication thread's calls from now on as spans of this track.
void pg_set_trace(ProcessGroup *group, Trace *trace, int track);

#endif
