/* work.c: the queue of a group and its communication thread.
 *
 * | call      | single rank, in place | backend that runs    | backend that enqueues (nccl)   |
 * |-----------|-----------------------|----------------------|--------------------------------|
 * | pg_start  | caller's thread       | communication thread | communication thread           |
 * | pg_run    | caller's thread       | caller's thread      | communication thread, awaited  |
 *
 * The owner issues calls. pg_start appends a PgWork to the queue. A call that runs in the caller's
 * thread, which saves a thread switch, first drains the queue. So at most one thread is inside the
 * backend, and the order of issue is the order of execution. No call allocates: each PgWork comes
 * from a pool.
 *
 * A backend that enqueues on a device (backend.h: poll) is called by the communication thread only,
 * which also polls it for completion; a PgWork is done once it is enqueued on the device.
 *
 * Invariant: `issued - finished` calls are queued or running. The fields under `mutex` are accessed
 * only while it is held, and it is never held during a call of the backend. The arguments of a call
 * are checked in collective.c.
 */
#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/profile.h"
#include "ddp/group/collective_load.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/own_sum.h"

#define POLL_S  0.001 // polling interval of the communication thread with calls in flight
#define WATCH_S 0.1   // interval of its health check when idle

// ---- one call ---------------------------------------------------------------------------

// A collective of tensors that are not stored (PgOptions.dry).
static bool is_dry(const ProcessGroup *group, const PgCall *call) {
    const int operation = call->operation, type = (int)call->collective.type;
    return group->dry && operation < PG_BARRIER &&
           (type == PG_F32 || (operation == PG_BROADCAST && type == PG_U8));
}

// A collective of a single rank in place is the identity. Checked here rather than in each backend:
// it then needs no thread and no device.
static bool is_identity(const ProcessGroup *group, const PgCall *call) {
    int operation = call->operation;
    if (is_dry(group, call)) return true;
    return group->size == 1 && (operation == PG_ALL_REDUCE || operation == PG_BROADCAST ||
                                operation == PG_REDUCE || operation == PG_BARRIER);
}

int pg_admit(ProcessGroup *group, PgCall *call, Error *err) {
    uint64_t now = call->issued_ns = clock_ns();
    pthread_mutex_lock(&group->mutex);
    int status = pg_copy_error(&group->error, err);
    if (!status) {
        call->sequence = pg_is_pairwise(call->operation) ? 0 : ++group->sequence;
        call->record =
            flight_schedule(group->flight, call->operation, &call->collective, call->sequence, now);
    }
    pthread_mutex_unlock(&group->mutex);
    return status;
}

// Marks a dequeued call as started and sets its deadline. Returns -1 if the group broke while the
// call was queued.
static int begin_call(ProcessGroup *group, PgCall *call) {
    uint64_t now = call->begin_ns = clock_ns();
    pthread_mutex_lock(&group->mutex);
    bool broken = group->error.status != STATUS_OK;
    if (!broken) flight_start(group->flight, call->record, now);
    pthread_mutex_unlock(&group->mutex);
    if (broken) return -1;
    const PgObserver *observer = &group->observer;
    if (observer->begins)
        observer->begins(observer->context, call->sequence, pg_operation_name(call->operation));
    if (call->timeout_s == 0) call->timeout_s = group->timeout_s;
    call->global = group->global;
    call->on_link = group->link;
    call->deadline_ns = now + (uint64_t)(call->timeout_s * 1e9);
    return 0;
}

static void trace_call(const PgCall *call, uint64_t end_ns, Trace *trace, int track) {
    const Collective *c = &call->collective;
    bool has_bytes = call->operation <= PG_BARRIER;
    trace_add(trace, track,
              &(TraceSpan){.name = pg_operation_name(call->operation),
                           .number = (int64_t)call->sequence,
                           .begin_ns = call->begin_ns,
                           .end_ns = end_ns,
                           .bytes = has_bytes ? c->count * pg_type_bytes(c->type) : 0,
                           .bucket = c->bucket - 1,
                           .ready_ns = c->bucket ? call->issued_ns : 0});
}

// Records the end of a call, successful or failed, and returns the time. In the trace a bucket is
// ready when its call is issued.
static uint64_t end_call(ProcessGroup *group, const PgCall *call, int status) {
    uint64_t now = clock_ns();
    pthread_mutex_lock(&group->mutex);
    if (!status) flight_complete(group->flight, call->record, now);
    if (call->collective.bucket) group->totals.bucket_ns += now - call->begin_ns;
    Trace *trace = group->trace;
    int track = group->track;
    pthread_mutex_unlock(&group->mutex);
    trace_call(call, now, trace, track);
    return now;
}

// Emulates the link: sleeps until a network would have completed this rank's part of the
// collective, counted from met_ns, when all ranks had arrived. A PgInternal does not use the link.
static int cross_link(const ProcessGroup *group, const PgCall *call, Error *err) {
    if (!group->link || call->operation > PG_BARRIER) return 0;
    const LinkLoad load = collective_load(&call->collective, group->rank, group->size);
    const uint64_t begin_ns = call->met_ns ? call->met_ns : clock_ns();
    const uint64_t end_ns = link_reserve_collective(group->link, &load, begin_ns);
    char text[PG_DESCRIPTION_MAX];
    if (end_ns > call->deadline_ns)
        return error_set(err, STATUS_FAILED,
                         "%s takes %.3g s over the emulated link, the timeout is %g s",
                         pg_describe(call->operation, &call->collective, text),
                         (double)(end_ns - begin_ns) / 1e9, call->timeout_s);
    link_sleep_until(end_ns);
    return 0;
}

// Runs the call in this thread. Returns 0, or -1: the group is broken and holds the error. *end_ns:
// when it ended; 0 while the device runs it.
static int run_call(ProcessGroup *group, PgCall *call, uint64_t *end_ns) {
    const PgBackend *backend = group->backend;
    Error error = {0};
    uint64_t moved = 0;
    int status = 0;
    if (begin_call(group, call) != 0) {
        *end_ns = call->begin_ns;
        return -1;
    }
    if (call->operation == PG_NEW_SUBGROUP) {
        status = backend->new_subgroup(group->state, call, &call->object, &error);
    } else if (call->operation == PG_SHARED_ALLOC) {
        call->object = backend->shared_alloc(group->state, call, &error);
        status = call->object ? 0 : -1;
    } else if (own_sum_runs(group, call) && !is_identity(group, call)) {
        status = own_sum_run(group, call, &error); // each of its messages crosses the link
    } else if (!is_identity(group, call)) {
        status = backend->run(group->state, call, &moved, &error);
        pg_count_moved(group, moved);
        if (status == 0) status = cross_link(group, call, &error);
    }
    *end_ns = status == 0 && call->in_flight ? 0 : end_call(group, call, status);
    return status ? pg_break(group, &error) : 0;
}

// ---- the communication thread ---------------------------------------------------------------

static bool queues(const ProcessGroup *group) {
    return group->backend->poll != NULL;
}

// Dequeues the next PgWork into *work; NULL after the polling interval. Returns false when the
// group is closing and nothing is queued or in flight.
static bool next_work(ProcessGroup *group, PgWork **work) {
    pthread_mutex_lock(&group->mutex);
    if (!group->first && (!group->closing || group->busy)) {
        struct timespec deadline = clock_deadline(group->busy ? POLL_S : WATCH_S);
        if (queues(group)) // Not a wait for a peer: pg_start and pg_close signal work_ready.
            pthread_cond_clockwait(&group->work_ready, &group->mutex, CLOCK_MONOTONIC, &deadline);
        else
            pthread_cond_wait(&group->work_ready, &group->mutex);
    }
    *work = group->first;
    if (*work) group->first = (*work)->next;
    if (!group->first) group->last = NULL;
    bool more = *work || !group->closing || group->busy;
    pthread_mutex_unlock(&group->mutex);
    return more;
}

static void do_work(ProcessGroup *group, PgWork *work) {
    int status = run_call(group, &work->call, &work->end_ns);
    pthread_mutex_lock(&group->mutex);
    work->failed = status != 0;
    work->done = true;
    group->finished++;
    pthread_cond_broadcast(&group->work_over);
    pthread_mutex_unlock(&group->mutex);
}

// Polls the backend and records the calls that have completed. Skipped while failed calls are
// queued: after a failure poll waits for the owner (it aborts calls in flight, graphs included),
// which must not be waiting for this thread.
static void poll_in_flight(ProcessGroup *group) {
    Error error = {0};
    PgCall ended;
    pthread_mutex_lock(&group->mutex);
    const bool has_failed_works = group->error.status != STATUS_OK && group->first;
    pthread_mutex_unlock(&group->mutex);
    if (has_failed_works) return;
    int status;
    while ((status = group->backend->poll(group->state, &ended, &group->busy, &error)) > 0)
        end_call(group, &ended, 0);
    if (status < 0) pg_break(group, &error);
}

static void *communication_thread(void *context) {
    ProcessGroup *group = context;
    cores_take_short_turns(); // it shares its core with the thread that computes
    PgWork *work;
    while (next_work(group, &work)) {
        if (work) do_work(group, work);
        if (queues(group)) poll_in_flight(group);
    }
    return NULL;
}

void pg_stop_thread(ProcessGroup *group) {
    pthread_mutex_lock(&group->mutex);
    group->closing = true;
    pthread_cond_signal(&group->work_ready);
    pthread_mutex_unlock(&group->mutex);
    if (group->thread_started) pthread_join(group->thread, NULL);
}

// ---- issuing --------------------------------------------------------------------------------

// Checks, numbers and records a call. Invalid arguments break the group: other ranks may have
// issued the same call correctly and be waiting in it.
static int issue(ProcessGroup *group, PgCall *call, Error *err) {
    const PgBackend *backend = group->backend;
    Error error = {0};
    if (pg_collective_check(&call->collective, group->rank, group->size, &error) == 0) {
        if (pg_admit(group, call, err) != 0) return -1;
        bool queued = backend->issue && !is_identity(group, call);
        if (!queued || backend->issue(group->state, call, &error) == 0) return 0;
    } else if (pg_check_sound(group, err) != 0) {
        return -1;
    }
    if (group->global) error_prefix(&error, "global rank %d", group->global[group->rank]);
    pg_copy_error(&error, err);
    return pg_break(group, &error);
}

// Waits on work_over, with the mutex held, for at most the timeout; callers loop on their
// condition, which becomes true without further calls: each queued call ends at its own deadline.
static void wait_over(ProcessGroup *group) {
    struct timespec deadline = clock_deadline(group->timeout_s);
    pthread_cond_clockwait(&group->work_over, &group->mutex, CLOCK_MONOTONIC, &deadline);
}

// The mutex also makes the communication thread's writes visible (acquire).
void pg_drain(ProcessGroup *group) {
    pthread_mutex_lock(&group->mutex);
    while (group->finished != group->issued) wait_over(group);
    pthread_mutex_unlock(&group->mutex);
}

// Takes a PgWork for the call from the pool, with the mutex held; NULL with err filled if the pool
// is empty.
static PgWork *take_work(ProcessGroup *group, const PgCall *call, Error *err) {
    PgWork *work = group->spare;
    if (!work)
        return error_null(err, STATUS_FAILED, "rank %d: more than %d collectives are outstanding",
                          group->rank, PG_MAX_WORKS);
    group->spare = work->next;
    work->call = *call;
    work->outstanding = true;
    work->done = work->failed = false;
    work->next = NULL;
    group->issued++;
    return work;
}

// Breaks the group because its queue cannot take a call. Always returns NULL.
static PgWork *refuse(ProcessGroup *group, const Error *cause, Error *err) {
    pg_break(group, cause);
    pg_copy_error(cause, err);
    return NULL;
}

// Drains the queue, then runs an issued call in the caller's thread. Returns its PgWork, which is
// done, or NULL with err filled: the group is broken.
static PgWork *run_here(ProcessGroup *group, const PgCall *call, Error *err) {
    Error error = {0};
    pg_drain(group);
    pthread_mutex_lock(&group->mutex);
    PgWork *work = take_work(group, call, &error);
    pthread_mutex_unlock(&group->mutex);
    if (!work) return refuse(group, &error, err);
    do_work(group, work);
    return work;
}

// Appends an issued call to the queue and wakes the communication thread, which the first call
// starts. Returns its PgWork, or NULL with err filled: the group is broken. Blocks in one case: a
// call recorded into a graph returns after the communication thread has recorded it. If the group
// broke meanwhile, the call fails here.
static PgWork *enqueue(ProcessGroup *group, const PgCall *call, Error *err) {
    Error error = {0};
    if (!group->thread_started) {
        int status = pthread_create(&group->thread, NULL, communication_thread, group);
        if (status) {
            error_set(&error, STATUS_FAILED, "rank %d: cannot start the communication thread: %s",
                      group->rank, strerror(status));
            return refuse(group, &error, err);
        }
        group->thread_started = true;
    }
    pthread_mutex_lock(&group->mutex);
    const bool broken = group->error.status != STATUS_OK;
    PgWork *work = take_work(group, call, &error);
    if (work && !broken) {
        *(group->last ? &group->last->next : &group->first) = work;
        group->last = work;
        pthread_cond_signal(&group->work_ready);
    }
    while (work && !broken && call->recorded && !work->done) wait_over(group);
    pthread_mutex_unlock(&group->mutex);
    if (!work) return refuse(group, &error, err);
    if (broken) do_work(group, work);
    return work;
}

// Waits for the PgWork, joins its ticket, and returns it to the pool. *call and *end_ns receive the
// outcome.
static int take_back(PgWork *work, PgCall *call, uint64_t *end_ns, Error *err) {
    CHECK(work->outstanding,
          "pg_work_wait: the work is not outstanding: it was waited for before, or its group is "
          "closed");
    ProcessGroup *group = work->group;
    work->outstanding = false;
    pthread_mutex_lock(&group->mutex);
    while (!work->done) wait_over(group);
    // Calls that a broken group enqueued on the device never complete.
    bool failed = work->failed || (queues(group) && group->error.status != STATUS_OK);
    int status = failed ? pg_copy_error(&group->error, err) : 0;
    *call = work->call;
    *end_ns = work->end_ns;
    work->next = group->spare;
    group->spare = work;
    pthread_mutex_unlock(&group->mutex);
    if (!status && call->ticket) group->backend->join(group->state, call);
    return status;
}

int pg_perform(ProcessGroup *group, PgCall *call, Error *err) {
    uint64_t end_ns;
    if (queues(group)) {
        PgWork *work =
            is_identity(group, call) ? run_here(group, call, err) : enqueue(group, call, err);
        return work ? take_back(work, call, &end_ns, err) : -1;
    }
    pg_drain(group);
    return run_call(group, call, &end_ns) ? pg_check_sound(group, err) : 0;
}

// pg_run inside the group's own sum: in this thread, which is the queue's.
static int run_inside(ProcessGroup *group, PgCall *call, Error *err) {
    uint64_t end_ns;
    if (own_sum_check(&call->collective, true, err) != 0 || issue(group, call, err) != 0) return -1;
    return run_call(group, call, &end_ns) ? pg_check_sound(group, err) : 0;
}

int pg_run(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.operation = (int)collective.kind, .collective = collective};
    if (own_sum_inside(group)) return run_inside(group, &call, err);
    return issue(group, &call, err) != 0 ? -1 : pg_perform(group, &call, err);
}

PgWork *pg_start(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.operation = (int)collective.kind, .collective = collective};
    if (own_sum_inside(group)) {
        (void)own_sum_check(&collective, false, err); // it allows none
        return NULL;
    }
    if (issue(group, &call, err) != 0) return NULL;
    return is_identity(group, &call) ? run_here(group, &call, err) : enqueue(group, &call, err);
}

int pg_work_wait(PgWork *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err) {
    PgCall call;
    uint64_t ended_ns;
    int status = take_back(work, &call, &ended_ns, err);
    if (begin_ns) *begin_ns = call.begin_ns;
    if (end_ns) *end_ns = ended_ns;
    return status;
}

int pg_monitored_barrier(ProcessGroup *group, double timeout_s, bool wait_all_ranks, Error *err) {
    if (!group) return 0;
    if (clock_check_timeout(timeout_s < 0 ? 0 : timeout_s, 0, err) != 0) return -1;
    PgCall call = {.operation = PG_BARRIER,
                   .collective = pg_barrier(),
                   .timeout_s = timeout_s,
                   .monitor = wait_all_ranks ? MONITOR_ALL : MONITOR_FIRST};
    if (timeout_s > 0) return issue(group, &call, err) != 0 ? -1 : pg_perform(group, &call, err);
    Error error = {0};
    error_set(&error, STATUS_FAILED, "Rank %d timed out in monitoredBarrier after 0 ms.",
              group->rank);
    (void)pg_break(group, &error);
    return pg_check_sound(group, err);
}
