/* internal.h: what the parts of a ProcessGroup share.
 *
 *     process_group.c   the group: made, asked, broken, closed
 *     work.c            its queue and its communication thread: pg_run, pg_start, work_wait
 *     subgroup.c        groups within the group
 *     operation.c       names of operations; collective.c: collectives as values
 *     fingerprint.c     do all ranks run the same call?
 */
#ifndef DDP_GROUP_INTERNAL_H
#define DDP_GROUP_INTERNAL_H

#include <pthread.h>

#include "ddp/group/backend.h"
#include "ddp/group/flight_recorder.h"
#include "ddp/group/flight_trigger.h"

struct Work {
    ProcessGroup *group;
    PgCall call;
    uint64_t end_ns;   // 0: the device is still at work
    bool done, failed; // under the group's mutex
    Work *next;        // in the queue or in the free list
};

struct ProcessGroup {
    const PgBackend *backend;
    void *state;
    int rank, size;
    int *global; // [size], the ranks' numbers in the job; NULL: the same
    double timeout_s;
    uint64_t sequence; // the owner's thread only
    bool thread_started;
    pthread_t thread;
    bool busy; // the communication thread only: something that was queued is in flight
    PgObserver observer;
    bool fast_sums;         // pg_use_fast_sums
    Link *link;             // to the other ranks, emulated; NULL: none
    FlightTrigger *trigger; // NULL unless there is a pipe

    pthread_mutex_t mutex;     // protects what follows
    pthread_cond_t work_ready; // the queue has work, or closing
    pthread_cond_t work_over;  // a Work is done
    Work *first, *last, *spare;
    uint64_t issued, finished; // Works
    PgTotals totals;
    FlightRecorder *flight;
    Trace *trace; // NULL: none
    int track;
    bool closing;
    Error error; // the first; status != STATUS_OK: the group is broken
    Work works[PG_MAX_WORKS];
};

// ---- process_group.c ------------------------------------------------------------------------

// Makes the group around a backend's state, as pg_new does, and takes a recorder that is open.
ProcessGroup *pg_new_around(const PgBackend *backend, void *state, int rank, int size,
                            double timeout_s, FlightRecorder *flight);
// Copies `from` to `to` and returns -1 if `from` is an error; otherwise returns 0.
int pg_copy_error(const Error *from, Error *to);
// Breaks the group, here and on the other ranks, which would otherwise wait for this one. Only the
// first error counts. Always returns -1.
int pg_break(ProcessGroup *group, const Error *cause);

// ---- work.c ---------------------------------------------------------------------------------

// Numbers and records a call. -1 with the first error if the group is broken.
int pg_admit(ProcessGroup *group, PgCall *call, Error *err);
// Does an admitted call, after all that was started before.
int pg_perform(ProcessGroup *group, PgCall *call, Error *err);
// Waits until all that was started is done.
void pg_drain(ProcessGroup *group);
// Lets the communication thread finish what was started, and ends it.
void pg_stop_thread(ProcessGroup *group);

#endif
