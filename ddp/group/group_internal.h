/* group_internal.h: the structs and functions that the files of a ProcessGroup share.
 *
 *     process_group.c   the group: creation, queries, the first error, closing
 *     work.c            its queue and communication thread: pg_run, pg_start, pg_work_wait
 *     subgroup.c        subgroups
 *     operation.c       names of operations; collective.c: collectives as values
 *     fingerprint.c     comparison of the ranks' calls
 */
#ifndef DDP_GROUP_INTERNAL_H
#define DDP_GROUP_INTERNAL_H

#include <pthread.h>

#include "ddp/group/backend.h"
#include "ddp/group/flight_recorder.h"
#include "ddp/group/flight_trigger.h"

struct PgWork {
    ProcessGroup *group;
    PgCall call;
    uint64_t end_ns;   // 0: the device still runs the call
    bool outstanding;  // taken from the pool and not waited for; the owner's thread only
    bool done, failed; // under the group's mutex
    PgWork *next;      // in the queue or in the free list
};

struct ProcessGroup {
    const PgBackend *backend;
    void *state;
    int rank, size;
    int *global; // [size], the ranks in the job; NULL: identical
    double timeout_s;
    uint64_t sequence;        // the owner's thread only
    int holds;                // pg_hold less pg_release; the owner's thread only
    bool thread_started, dry; // dry: PgOptions
    pthread_t thread;
    bool busy; // the communication thread only: calls are in flight on the device
    PgObserver observer;
    DeviceLink *link;       // emulated network; NULL: none
    FlightTrigger *trigger; // NULL: no pipe is configured
    // A user's sum of buckets (own_sum.h); NULL: the backend's.
    int (*sum)(ProcessGroup *group, float *values, size_t count, Error *err);

    pthread_mutex_t mutex;     // protects the fields below
    pthread_cond_t work_ready; // the queue is not empty, or closing is set
    pthread_cond_t work_over;  // a PgWork is done
    PgWork *first, *last;      // the queue
    PgWork *spare;             // the pool
    uint64_t issued, finished; // number of calls
    PgTotals totals;
    FlightRecorder *flight;
    Trace *trace; // NULL: none
    int track;
    bool closing;
    Error error;        // the first error; status != STATUS_OK: the group is broken
    ProcessGroup *next; // in the list of open or of closed groups
    PgWork works[PG_MAX_WORKS];
};

// ---- process_group.c ------------------------------------------------------------------------

// Like pg_new, with a recorder that is open already and that the group owns from now on.
ProcessGroup *pg_new_around(const PgBackend *backend, void *state, int rank, int size,
                            double timeout_s, FlightRecorder *flight);
// Adds the group to the list of open groups in which pg_close looks it up, or removes it; false if
// it is not in the list. The nccl backend is a shared object with a list of its own, and its groups
// are closed by the program: the module unlists a new group, the program lists it.
void pg_list_open(ProcessGroup *group);
bool pg_unlist_open(const ProcessGroup *group);
// Copies `from` to `to` and returns -1 if `from` is an error; otherwise returns 0.
int pg_copy_error(const Error *from, Error *to);
// Breaks the group on all ranks: the others would otherwise wait for this one. Only the first error
// is kept. Always returns -1.
int pg_break(ProcessGroup *group, const Error *cause);

// ---- work.c ---------------------------------------------------------------------------------

// Numbers and records a call. -1 with the first error if the group is broken.
int pg_admit(ProcessGroup *group, PgCall *call, Error *err);
// Runs an admitted call after the queued ones, and waits for it.
int pg_perform(ProcessGroup *group, PgCall *call, Error *err);
// Waits until all queued calls are done.
void pg_drain(ProcessGroup *group);
// Ends the communication thread after the queued calls.
void pg_stop_thread(ProcessGroup *group);

#endif
