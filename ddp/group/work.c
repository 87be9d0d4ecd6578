/* work.c: a group's queue and its communication thread.
 *
 * One thread owns the handle and issues the calls. pg_start puts a Work at the end of the queue of
 * the communication thread; pg_run waits until that queue has run empty and then works in the
 * caller's thread, which saves the hand-over. So at any moment at most one thread is inside the
 * backend, and the order of issue is the order of execution. No call takes memory: Works come from
 * a pool.
 *
 * A backend that queues (backend.h) is used by the communication thread only, which then also
 * looks after what the device has not done yet; a Work is done when it is queued.
 *
 * A group of one rank leaves its backend out of what is done in place (is_alone).
 *
 * Invariant: `issued - finished` Works are queued or running; all fields under `mutex` are read and
 * written only while it is held, and nobody holds it while the backend works. What a call's
 * arguments must be is in collective.c.
 */
#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "ddp/group/collective_load.h"
#include "ddp/group/internal.h"

#define POLL_S  0.001 // how often the communication thread looks at what is in flight,
#define WATCH_S 0.1   // and, when nothing is, whether the group is still sound

// ---- one call ---------------------------------------------------------------------------

// What is done in place with nobody else leaves the buffer as it is. Decided here and not by a
// backend, it costs no thread and no device anything.
static bool is_alone(const ProcessGroup *group, const PgCall *call) {
    int operation = call->operation;
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

// The call is taken up now, unless the group broke while it was queued: then -1.
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

// The call has ended, well or not: for the records. A bucket was ready when its call was issued.
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

// The emulated link: this rank sleeps until its part of the collective would be over, counted from
// when all ranks had come. What a group is made of (PgInternal) crosses no link.
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

static int call_backend(ProcessGroup *group, PgCall *call, Error *err) {
    const PgBackend *backend = group->backend;
    if (is_alone(group, call)) return 0;
    if (call->operation == PG_NEW_SUBGROUP)
        return backend->new_subgroup(group->state, call, &call->object, err);
    if (call->operation == PG_SHARED_ALLOC) {
        call->object = backend->shared_alloc(group->state, call, err);
        return call->object ? 0 : -1;
    }
    uint64_t moved = 0;
    int status = backend->run(group->state, call, &moved, err);
    pthread_mutex_lock(&group->mutex);
    group->totals.moved_bytes += moved;
    pthread_mutex_unlock(&group->mutex);
    return status ? status : cross_link(group, call, err);
}

// Runs the call in this thread. On failure the group is broken and holds the error.
static int run_call(ProcessGroup *group, PgCall *call, uint64_t *end_ns) {
    Error error = {0};
    if (begin_call(group, call)) {
        *end_ns = call->begin_ns;
        return -1;
    }
    int status = call_backend(group, call, &error);
    *end_ns = status == 0 && call->in_flight ? 0 : end_call(group, call, status);
    return status ? pg_break(group, &error) : 0;
}

// ---- the communication thread ---------------------------------------------------------------

static bool queues(const ProcessGroup *group) {
    return group->backend->poll != NULL;
}

// Takes the next Work, if there is one within the time; false when the group is closing and nothing
// is left to do.
static bool next_work(ProcessGroup *group, Work **work) {
    pthread_mutex_lock(&group->mutex);
    if (!group->first && (!group->closing || group->busy)) {
        struct timespec deadline = clock_deadline(group->busy ? POLL_S : WATCH_S);
        if (queues(group)) // Neither is a wait for a peer: pg_start or pg_close ends the other.
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

static void do_work(ProcessGroup *group, Work *work) {
    int status = run_call(group, &work->call, &work->end_ns);
    pthread_mutex_lock(&group->mutex);
    work->failed = status != 0;
    work->done = true;
    group->finished++;
    pthread_cond_broadcast(&group->work_over);
    pthread_mutex_unlock(&group->mutex);
}

// Is there a Work in the queue of a broken group? Then its owner may wait for it.
static bool owes_failure(ProcessGroup *group) {
    pthread_mutex_lock(&group->mutex);
    bool owes = group->error.status != STATUS_OK && group->first;
    pthread_mutex_unlock(&group->mutex);
    return owes;
}

// After a failure poll may wait for the owner (it stops what is in flight, graphs among it), who
// must not wait for this thread then.
static void look_after_queued(ProcessGroup *group) {
    Error error = {0};
    if (owes_failure(group)) return;
    PgCall ended;
    int status;
    while ((status = group->backend->poll(group->state, &ended, &group->busy, &error)) > 0)
        end_call(group, &ended, 0);
    if (status < 0) pg_break(group, &error);
}

static void *communication_thread(void *context) {
    ProcessGroup *group = context;
    cores_take_short_turns(); // it shares its core with the thread that computes
    Work *work;
    while (next_work(group, &work)) {
        if (work) do_work(group, work);
        if (queues(group)) look_after_queued(group);
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

// Checks and numbers a call. A call that this rank must refuse breaks the group: the others may
// have made the same call rightly, and wait.
static int issue(ProcessGroup *group, PgCall *call, Error *err) {
    const PgBackend *backend = group->backend;
    Error error = {0};
    if (!pg_collective_check(&call->collective, group->rank, group->size, &error)) {
        if (pg_admit(group, call, err) != 0) return -1;
        bool queued = backend->issue && !is_alone(group, call);
        if (!queued || !backend->issue(group->state, call, &error)) return 0;
    } else if (pg_check_sound(group, err) != 0) {
        return -1;
    }
    if (group->global) error_prefix(&error, "global rank %d", group->global[group->rank]);
    pg_copy_error(&error, err);
    return pg_break(group, &error);
}

// Waits on work_over, with the mutex held. Its condition becomes true without anybody's help: each
// call ahead of the caller ends at its own deadline. Hence the loop of bounded waits at the
// callers.
static void wait_over(ProcessGroup *group) {
    struct timespec deadline = clock_deadline(group->timeout_s);
    pthread_cond_clockwait(&group->work_over, &group->mutex, CLOCK_MONOTONIC, &deadline);
}

// The mutex also makes the communication thread's writes visible.
void pg_drain(ProcessGroup *group) {
    pthread_mutex_lock(&group->mutex);
    while (group->finished != group->issued) wait_over(group);
    pthread_mutex_unlock(&group->mutex);
}

static int start_thread(ProcessGroup *group, Error *err) {
    if (group->thread_started) return 0;
    int status = pthread_create(&group->thread, NULL, communication_thread, group);
    if (status)
        return error_set(err, STATUS_FAILED, "rank %d: cannot start the communication thread: %s",
                         group->rank, strerror(status));
    group->thread_started = true;
    return 0;
}

// Takes a Work for the call from the pool, with the mutex held; NULL if that is empty.
static Work *take_work(ProcessGroup *group, const PgCall *call) {
    Work *work = group->spare;
    if (!work) return NULL;
    group->spare = work->next;
    work->call = *call;
    work->done = work->failed = false;
    work->next = NULL;
    group->issued++;
    return work;
}

// Puts a Work at the end of the queue, with the mutex held.
static void enqueue(ProcessGroup *group, Work *work) {
    if (group->last)
        group->last->next = work;
    else
        group->first = work;
    group->last = work;
    pthread_cond_signal(&group->work_ready);
}

// Hands an issued call to the communication thread. NULL with err filled: the group is broken.
static Work *hand_over(ProcessGroup *group, const PgCall *call, Error *err) {
    Error error = {0};
    Work *work = NULL;
    bool alone = is_alone(group, call);
    if (alone) pg_drain(group);
    if (alone || !start_thread(group, &error)) {
        pthread_mutex_lock(&group->mutex);
        work = take_work(group, call);
        bool here = alone || group->error.status != STATUS_OK; // broken: it fails at once
        if (work && !here) enqueue(group, work);
        while (work && !here && call->recorded && !work->done) wait_over(group);
        pthread_mutex_unlock(&group->mutex);
        if (work && here) do_work(group, work);
        if (work) return work;
        error_set(&error, STATUS_FAILED, "rank %d: more than %d collectives are outstanding",
                  group->rank, PG_MAX_WORKS);
    }
    pg_break(group, &error);
    pg_copy_error(&error, err);
    return NULL;
}

// Waits for the Work and gives it back. *call and *end_ns get what has become of it.
static int take_back(Work *work, PgCall *call, uint64_t *end_ns, Error *err) {
    ProcessGroup *group = work->group;
    pthread_mutex_lock(&group->mutex);
    while (!work->done) wait_over(group);
    // What was queued before the group broke will never be right.
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
        Work *work = hand_over(group, call, err);
        return work ? take_back(work, call, &end_ns, err) : -1;
    }
    pg_drain(group);
    return run_call(group, call, &end_ns) ? pg_check_sound(group, err) : 0;
}

int pg_run(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.operation = (int)collective.kind, .collective = collective};
    return issue(group, &call, err) ? -1 : pg_perform(group, &call, err);
}

Work *pg_start(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.operation = (int)collective.kind, .collective = collective};
    return issue(group, &call, err) ? NULL : hand_over(group, &call, err);
}

int work_wait(Work *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err) {
    PgCall call;
    uint64_t ended_ns;
    int status = take_back(work, &call, &ended_ns, err);
    if (begin_ns) *begin_ns = call.begin_ns;
    if (end_ns) *end_ns = ended_ns;
    return status;
}

int pg_monitored_barrier(ProcessGroup *group, double timeout_s, bool wait_all_ranks, Error *err) {
    if (!group) return 0;
    PgCall call = {.operation = PG_BARRIER,
                   .collective = pg_barrier(),
                   .timeout_s = timeout_s,
                   .monitor = wait_all_ranks ? MONITOR_ALL : MONITOR_FIRST};
    if (timeout_s > 0) return issue(group, &call, err) ? -1 : pg_perform(group, &call, err);
    Error error = {0};
    error_set(&error, STATUS_FAILED, "Rank %d timed out in monitoredBarrier after 0 ms.",
              group->rank);
    (void)pg_break(group, &error);
    return pg_check_sound(group, err);
}
