/* process_group.h: a fixed set of ranks and the collectives between them.
 *
 * A Collective is a value that says what is to be done; pg_run does it and returns when it is done,
 * pg_start hands it to the group's communication thread and returns a Work to wait on. Both kinds
 * are carried out in the order in which this rank issued them, and every rank must issue the same
 * ones in the same order: each carries a sequence number and a fingerprint (kind, count, dtype, op,
 * root), and ranks that disagree all get an error that names the ranks, the operations and the
 * sizes.
 *
 * Nothing waits for ever: every wait ends at the group's timeout with an error that names the ranks
 * that are missing and the last collective each of them finished. After an error the group is
 * broken and every further call fails with the first error.
 *
 * Sums are taken in rank order, ((r0 + r1) + r2) + ..., element by element, whatever the count, the
 * buffer or the timing; PG_AVG multiplies that sum once by 1/W. So the result does not depend on
 * how a gradient is cut into buckets, and it is DataParallel's, bit for bit. (With nccl the order
 * is NCCL's: all ranks get the same bits, which are not those.)
 *
 * A group may have groups within it, as many as wanted and overlapping. Each is a ProcessGroup of
 * its own with its own ranks, sequence numbers and communication thread; what one of them does
 * keeps no other from working. Errors of such a group name a rank by its place in the group and, in
 * parentheses, in the job: "rank 0 (global 2)".
 *
 * Backends: "shm" (ddp/group/shm/pg_shm.h): ranks are processes of one host, or threads of one
 * process; "mpi" (ddp/group/mpi/pg_mpi.h): processes of several hosts, which MPI starts; "nccl"
 * (ddp/group/nccl/pg_nccl.h): ranks are GPUs.
 *
 * With nccl, buffers in device memory are worked on in the device's order: a collective begins when
 * what the device was asked for before is done, and what it is asked for after pg_run or work_wait
 * comes after it. Neither waits for the device then. Host buffers hold the result on return.
 */
#ifndef DDP_GROUP_PROCESS_GROUP_H
#define DDP_GROUP_PROCESS_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/trace.h"
#include "ddp/group/collective.h"

typedef struct Link Link; // common/device/link.h
typedef struct ProcessGroup ProcessGroup;
typedef struct Work Work;

// Is told of each operation as it is taken up, by the thread that does it: its sequence number, and
// its name ("all_reduce").
typedef struct PgObserver {
    void *context;
    void (*begins)(void *context, uint64_t sequence, const char *name); // NULL: nobody is told
    void (*close)(void *context); // with the group; NULL: there is nothing to close
} PgObserver;

// What is said of a group when it is opened. It is fixed then, before the communication thread
// starts. Groups within the group have the same timeout and flight folder, and nothing else.
typedef struct PgOptions {
    double timeout_s; // the deadline of every operation
    PgObserver observer;
    // The last operations of each rank are always recorded (ddp/group/flight_recorder.h). When the
    // group breaks, the records are written into this folder (NULL or "": nowhere), and the very
    // last are said on stderr if flight_say. Whoever writes into the named pipe
    // <flight_pipe><rank>.pipe has them written at once (NULL or "": there is none).
    const char *flight_folder, *flight_pipe;
    bool flight_say;
} PgOptions;

int pg_rank(const ProcessGroup *group);
int pg_size(const ProcessGroup *group);
// The number in the whole job of a rank of this group.
int pg_global_rank(const ProcessGroup *group, int rank);
const char *pg_backend(const ProcessGroup *group); // "shm"
// Collectives issued by this rank so far, without sends and receives (those are numbered per pair).
uint64_t pg_sequence(const ProcessGroup *group);

// Since the group was opened.
typedef struct PgTotals {
    uint64_t moved_bytes; // this rank read from or wrote to other ranks
    uint64_t bucket_ns;   // inside the collectives of buckets, waits for other ranks included
} PgTotals;
PgTotals pg_totals(const ProcessGroup *group);
static inline uint64_t pg_moved_bytes(const ProcessGroup *group) {
    return pg_totals(group).moved_bytes;
}

// Does the collective; returns 0, or -1 with err filled.
int pg_run(ProcessGroup *group, Collective collective, Error *err);
// Starts it. The buffers belong to the group until work_wait. NULL with err filled if broken.
// At most PG_MAX_WORKS may be outstanding.
enum { PG_MAX_WORKS = 1024 };
Work *pg_start(ProcessGroup *group, Collective collective, Error *err);
// Waits and gives the Work back. Returns 0, or -1 with err filled. begin and end (either may be
// NULL) receive clock_ns when the communication thread took it up and when it was done; end is 0 if
// a device is still at work on it.
int work_wait(Work *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err);

// Memory of this rank that collectives work on directly, without copying it in or out: the other
// ranks map it too. Collective: all ranks call with the same bytes. Zeroed, page aligned. NULL with
// err filled. Freed by pg_close.
void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err);

// Where rank `rank` has what this rank has at `mine`, in memory of pg_shared_alloc: it may be read
// and written between two barriers, directly. NULL where ranks cannot reach each other's memory
// (nccl), or are to behave so (an emulated link). Who does so tells how many bytes it moved.
void *pg_peer_memory(ProcessGroup *group, const void *mine, int rank);
void pg_count_moved(ProcessGroup *group, uint64_t bytes);

// Makes a group of some ranks of the parent (PyTorch's new_group): ranks[count], in any order, are
// numbered anew in ascending order. Collective over the parent, which has at most 64 ranks: all of
// them call, with the same set. A rank outside the set gets NULL and no error; NULL with err filled
// is a failure, which breaks the parent. The two are closed separately, in any order.
ProcessGroup *pg_new_subgroup(ProcessGroup *parent, const int *ranks, int count, Error *err);
// Divides the parent: ranks of the same color, from 0, make a group (MPI_Comm_split); a negative
// color stays outside and gets NULL and no error. Collective over the parent.
ProcessGroup *pg_split(ProcessGroup *parent, int color, Error *err);

// 0 if the group is sound, otherwise -1 with the first error. Any thread may ask.
int pg_check_sound(ProcessGroup *group, Error *err);

// Breaks a sound group because of an error that this rank met elsewhere: the other ranks' waits end
// at once, with an error that names this rank and says the same. False if it was broken already:
// then nothing changes.
bool pg_abort(ProcessGroup *group, const Error *cause);

// A barrier with a timeout of its own (PyTorch's monitored_barrier): who is missing when it is over
// is named, the first such rank or all of them; the group is then broken. group NULL, for a rank
// outside a subgroup: nothing happens.
int pg_monitored_barrier(ProcessGroup *group, double timeout_s, bool wait_all_ranks, Error *err);

// Writes the flight records (PgOptions) into a folder now; with NULL as a group does that breaks,
// to where the options say. Any thread may ask, also while a collective hangs.
int pg_write_flight(ProcessGroup *group, const char *folder, Error *err);

// Finishes what was started and ends the group for this rank. Does not wait for the others: what
// they map of this rank's memory stays theirs until they close. NULL is fine.
void pg_close(ProcessGroup *group);

// Every collective from now on takes this rank at least as long as it would over such a network, by
// the usual algorithm (collective_load.h): the thread that carries it out sleeps until then. All
// ranks have links of the same speed, and the groups that are made within this one use the same
// link. Before the first pg_start; the link must outlive the group. NULL: none, as at first.
void pg_emulate_link(ProcessGroup *group, Link *link);

// Gives up the order of the sums for speed: from now on all_reduce adds floats as the backend's own
// library does (mpi: MPI_Allreduce). All ranks get the same bits, but other ones than with shm, and
// other ones with other buckets. All ranks must say so before their next collective. -1 with err
// filled: this backend has nothing faster.
int pg_use_fast_sums(ProcessGroup *group, Error *err);
// False after pg_use_fast_sums.
bool pg_sums_in_rank_order(const ProcessGroup *group);

// What the communication thread does from now on is recorded as spans of this track.
void pg_set_trace(ProcessGroup *group, Trace *trace, int track);

#endif
