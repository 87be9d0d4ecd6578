/* process_group.c: the part of a ProcessGroup that is the same for every backend.
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
 * arguments must be is in collective.c; how bytes travel is the backend's.
 */
#include "ddp/group/process_group.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/backend.h"
#include "ddp/group/flight_recorder.h"
#include "ddp/group/flight_trigger.h"

#define POLL_S  0.001 // how often the communication thread looks at what is in flight,
#define WATCH_S 0.1   // and, when nothing is, whether the group is still sound

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
    Trace *trace;
    int track;
    PgObserver observe;
    void *observe_context;
    FlightTrigger *trigger; // NULL unless there is a pipe

    pthread_mutex_t mutex;     // protects what follows
    pthread_cond_t work_ready; // the queue has work, or closing
    pthread_cond_t work_over;  // a Work is done
    Work *first, *last, *spare;
    uint64_t issued, finished; // Works
    PgTotals totals;
    FlightRecorder *flight;
    bool closing;
    Error error; // the first; status != STATUS_OK: the group is broken
    Work works[PG_MAX_WORKS];
};

ProcessGroup *pg_new(const PgBackend *backend, void *state, int rank, int size, double timeout_s) {
    ProcessGroup *group = memory_zalloc(sizeof *group);
    group->backend = backend;
    group->state = state;
    group->rank = rank;
    group->size = size;
    group->timeout_s = timeout_s;
    group->flight = flight_recorder_open("world");
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->work_ready, NULL);
    pthread_cond_init(&group->work_over, NULL);
    for (size_t i = 0; i < PG_MAX_WORKS; i++) {
        group->works[i].group = group;
        group->works[i].next = group->spare;
        group->spare = &group->works[i];
    }
    return group;
}

int pg_rank(const ProcessGroup *group) {
    return group->rank;
}
int pg_size(const ProcessGroup *group) {
    return group->size;
}
int pg_global_rank(const ProcessGroup *group, int rank) {
    CHECK(rank >= 0 && rank < group->size, "rank %d of %d", rank, group->size);
    return group->global ? group->global[rank] : rank;
}
const char *pg_backend(const ProcessGroup *group) {
    return group->backend->name;
}
uint64_t pg_sequence(const ProcessGroup *group) {
    return group->sequence;
}

PgTotals pg_totals(const ProcessGroup *group) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&group->mutex;
    pthread_mutex_lock(mutex);
    PgTotals totals = group->totals;
    pthread_mutex_unlock(mutex);
    return totals;
}

void pg_set_trace(ProcessGroup *group, Trace *trace, int track) {
    group->trace = trace;
    group->track = track;
}

void pg_set_observer(ProcessGroup *group, PgObserver observe, void *context) {
    group->observe = observe;
    group->observe_context = context;
}

// ---- the first error ------------------------------------------------------------------------

static int copy_error(const Error *from, Error *to) {
    return from->status == STATUS_OK ? 0 : error_set(to, from->status, "%s", from->message);
}

// 0 if the group is sound, otherwise -1 and the first error.
static int group_check(ProcessGroup *group, Error *err) {
    pthread_mutex_lock(&group->mutex);
    int status = copy_error(&group->error, err);
    pthread_mutex_unlock(&group->mutex);
    return status;
}

// Writes a copy of the flight recorder: files are no business to hold a mutex for. folder NULL:
// what was configured for a group that breaks.
static int write_flight(ProcessGroup *group, const char *folder, Error *err) {
    FlightAbout about = {group->backend->name, group->rank, group->size, group->global, NULL};
    pthread_mutex_lock(&group->mutex);
    FlightRecorder *copy = flight_recorder_copy(group->flight);
    Error cause = group->error;
    pthread_mutex_unlock(&group->mutex);
    if (cause.status != STATUS_OK) about.error = cause.message;
    int status = folder ? flight_write(copy, &about, folder, err) : 0;
    if (!folder) flight_write_broken(copy, &about);
    flight_recorder_close(copy);
    return status;
}

// Breaks the group, here and on the other ranks, which would otherwise wait for this one. Only the
// first error counts: false if there was one already.
static bool break_sound(ProcessGroup *group, const Error *cause) {
    pthread_mutex_lock(&group->mutex);
    bool sound = group->error.status == STATUS_OK;
    copy_error(cause, &group->error);
    pthread_mutex_unlock(&group->mutex);
    if (!sound) return false;
    group->backend->abort(group->state, cause->message);
    (void)write_flight(group, NULL, NULL);
    return true;
}

static int group_break(ProcessGroup *group, const Error *cause) {
    (void)break_sound(group, cause);
    return -1;
}

bool pg_abort(ProcessGroup *group, const Error *cause) {
    Error named = *cause;
    error_prefix(&named, "rank %d", group->rank);
    return break_sound(group, &named);
}

// ---- carrying out ---------------------------------------------------------------------------

static bool is_pairwise(CollectiveKind kind) {
    return kind == PG_SEND || kind == PG_RECV;
}

// What is done in place with nobody else leaves the buffer as it is. Said here and not by a
// backend, it costs no thread and no device anything.
static bool is_alone(const ProcessGroup *group, const PgCall *call) {
    CollectiveKind kind = call->collective.kind;
    return group->size == 1 && (kind == PG_ALL_REDUCE || kind == PG_BROADCAST ||
                                kind == PG_REDUCE || kind == PG_BARRIER);
}

// Numbers and records a call. -1 with the first error if the group is broken.
static int admit(ProcessGroup *group, PgCall *call, Error *err) {
    uint64_t now = call->issued_ns = clock_ns();
    pthread_mutex_lock(&group->mutex);
    int status = copy_error(&group->error, err);
    if (!status) {
        call->sequence = is_pairwise(call->collective.kind) ? 0 : ++group->sequence;
        call->record = flight_schedule(group->flight, &call->collective, call->sequence, now);
    }
    pthread_mutex_unlock(&group->mutex);
    return status;
}

// The call is now carried out, unless the group broke while it was queued: then -1.
static int begin_call(ProcessGroup *group, PgCall *call) {
    uint64_t now = call->begin_ns = clock_ns();
    pthread_mutex_lock(&group->mutex);
    bool broken = group->error.status != STATUS_OK;
    if (!broken) flight_start(group->flight, call->record, now);
    pthread_mutex_unlock(&group->mutex);
    if (broken) return -1;
    if (group->observe)
        group->observe(group->observe_context, call->sequence, pg_kind_name(call->collective.kind));
    if (call->timeout_s == 0) call->timeout_s = group->timeout_s;
    call->global = group->global;
    call->deadline_ns = now + (uint64_t)(call->timeout_s * 1e9);
    return 0;
}

// The call has ended, well or not: for the records.
static uint64_t end_call(ProcessGroup *group, const PgCall *call, int status) {
    uint64_t now = clock_ns();
    pthread_mutex_lock(&group->mutex);
    if (!status) flight_complete(group->flight, call->record, now);
    if (call->collective.bucket) group->totals.bucket_ns += now - call->begin_ns;
    pthread_mutex_unlock(&group->mutex);
    pg_trace_call(call, now, group->trace, group->track);
    return now;
}

static int carry_out(ProcessGroup *group, PgCall *call, Error *err) {
    const PgBackend *backend = group->backend;
    CollectiveKind kind = call->collective.kind;
    if (is_alone(group, call)) return 0;
    if (kind == PG_NEW_SUBGROUP)
        return backend->new_subgroup(group->state, call, &call->object, err);
    if (kind == PG_SHARED_ALLOC) {
        call->object = backend->shared_alloc(group->state, call, err);
        return call->object ? 0 : -1;
    }
    uint64_t moved = 0;
    int status = backend->run(group->state, call, &moved, err);
    pthread_mutex_lock(&group->mutex);
    group->totals.moved_bytes += moved;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

// Runs the call in this thread. On failure the group is broken and holds the error.
static int run_call(ProcessGroup *group, PgCall *call, uint64_t *end_ns) {
    Error error = {0};
    if (begin_call(group, call)) {
        *end_ns = call->begin_ns;
        return -1;
    }
    int status = carry_out(group, call, &error);
    *end_ns = status == 0 && call->in_flight ? 0 : end_call(group, call, status);
    return status ? group_break(group, &error) : 0;
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

static void look_after_queued(ProcessGroup *group) {
    Error error = {0};
    PgCall ended;
    int status;
    while ((status = group->backend->poll(group->state, &ended, &group->busy, &error)) > 0)
        end_call(group, &ended, 0);
    if (status < 0) group_break(group, &error);
}

static void *communication_thread(void *context) {
    ProcessGroup *group = context;
    Work *work;
    while (next_work(group, &work)) {
        if (work) do_work(group, work);
        if (queues(group)) look_after_queued(group);
    }
    return NULL;
}

// ---- issuing --------------------------------------------------------------------------------

// Checks and numbers a call. A call that this rank must refuse breaks the group: the others may
// have made the same call rightly, and wait.
static int issue(ProcessGroup *group, PgCall *call, Error *err) {
    const PgBackend *backend = group->backend;
    Error error = {0};
    if (!pg_collective_check(&call->collective, group->rank, group->size, &error)) {
        if (admit(group, call, err)) return -1;
        bool queued = backend->issue && !is_alone(group, call);
        if (!queued || !backend->issue(group->state, call, &error)) return 0;
    } else if (group_check(group, err)) {
        return -1;
    }
    if (group->global) error_prefix(&error, "global rank %d", group->global[group->rank]);
    copy_error(&error, err);
    return group_break(group, &error);
}

// Waits on work_over, with the mutex held. Its condition becomes true without anybody's help: each
// call ahead of the caller ends at its own deadline. Hence the loop of bounded waits at the
// callers.
static void wait_over(ProcessGroup *group) {
    struct timespec deadline = clock_deadline(group->timeout_s);
    pthread_cond_clockwait(&group->work_over, &group->mutex, CLOCK_MONOTONIC, &deadline);
}

// Waits until the queue is empty. The mutex also makes the communication thread's writes visible.
static void drain(ProcessGroup *group) {
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

// With the mutex held.
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
    if (alone) drain(group);
    if (alone || !start_thread(group, &error)) {
        pthread_mutex_lock(&group->mutex);
        work = take_work(group, call);
        if (work && !alone) enqueue(group, work);
        while (work && call->recorded && !work->done) wait_over(group);
        pthread_mutex_unlock(&group->mutex);
        if (work && alone) do_work(group, work);
        if (work) return work;
        error_set(&error, STATUS_FAILED, "rank %d: more than %d collectives are outstanding",
                  group->rank, PG_MAX_WORKS);
    }
    group_break(group, &error);
    copy_error(&error, err);
    return NULL;
}

// Waits for the Work and gives it back. *call and *end_ns get what has become of it.
static int take_back(Work *work, PgCall *call, uint64_t *end_ns, Error *err) {
    ProcessGroup *group = work->group;
    pthread_mutex_lock(&group->mutex);
    while (!work->done) wait_over(group);
    // What was queued before the group broke will never be right.
    bool failed = work->failed || (queues(group) && group->error.status != STATUS_OK);
    int status = failed ? copy_error(&group->error, err) : 0;
    *call = work->call;
    *end_ns = work->end_ns;
    work->next = group->spare;
    group->spare = work;
    pthread_mutex_unlock(&group->mutex);
    if (!status && call->ticket) group->backend->join(group->state, call);
    return status;
}

// Does an issued call, after all that was started.
static int perform(ProcessGroup *group, PgCall *call, Error *err) {
    uint64_t end_ns;
    if (queues(group)) {
        Work *work = hand_over(group, call, err);
        return work ? take_back(work, call, &end_ns, err) : -1;
    }
    drain(group);
    return run_call(group, call, &end_ns) ? group_check(group, err) : 0;
}

int pg_run(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.collective = collective};
    return issue(group, &call, err) ? -1 : perform(group, &call, err);
}

Work *pg_start(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call = {.collective = collective};
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
    PgCall call = {.collective = pg_barrier(),
                   .timeout_s = timeout_s,
                   .monitor = wait_all_ranks ? MONITOR_ALL : MONITOR_FIRST};
    if (timeout_s > 0) return issue(group, &call, err) ? -1 : perform(group, &call, err);
    Error error = {0};
    error_set(&error, STATUS_FAILED, "Rank %d timed out in monitoredBarrier after 0 ms.",
              group->rank);
    (void)group_break(group, &error);
    return group_check(group, err);
}

// ---- groups within the group ----------------------------------------------------------------

static int count_members(uint64_t members) {
    int count = 0;
    for (; members; members &= members - 1) count++;
    return count;
}

// *members: bit r is set for each r of ranks[count].
static int pack_members(const ProcessGroup *parent, const int *ranks, int count, uint64_t *members,
                        Error *err) {
    *members = 0;
    if (parent->size > PG_SUBGROUP_PARENT_MAX)
        return error_set(err, STATUS_FAILED, "subgroups are for groups of up to %d ranks, not %d",
                         PG_SUBGROUP_PARENT_MAX, parent->size);
    if (count < 1) return error_set(err, STATUS_FAILED, "a subgroup needs at least one rank");
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return error_set(err, STATUS_FAILED, "a subgroup with rank %d of a group of %d",
                             ranks[i], parent->size);
        if (*members >> ranks[i] & 1)
            return error_set(err, STATUS_FAILED, "a subgroup with rank %d twice", ranks[i]);
        *members |= (uint64_t)1 << ranks[i];
    }
    return 0;
}

// The new group, around its backend's state.
static ProcessGroup *new_member(const ProcessGroup *parent, uint64_t members, void *state,
                                uint64_t sequence) {
    int size = count_members(members), rank = 0;
    int *global = memory_zalloc((size_t)size * sizeof *global);
    bool same = true; // as in the job: then names need not say both
    for (int r = 0, place = 0; r < parent->size; r++) {
        if (!(members >> r & 1)) continue;
        if (r == parent->rank) rank = place;
        global[place] = pg_global_rank(parent, r);
        same = same && global[place] == place;
        place++;
    }
    ProcessGroup *group = pg_new(parent->backend, state, rank, size, parent->timeout_s);
    flight_recorder_derive(group->flight, parent->flight, sequence);
    if (same)
        free(global);
    else
        group->global = global;
    return group;
}

ProcessGroup *pg_new_subgroup(ProcessGroup *parent, const int *ranks, int count, Error *err) {
    drain(parent);
    if (group_check(parent, err)) return NULL;
    Error error = {0};
    PgCall call = {.collective = {.kind = PG_NEW_SUBGROUP, .type = PG_U8}};
    uint64_t members;
    if (pack_members(parent, ranks, count, &members, &error)) {
        error_prefix(&error, "rank %d", parent->rank);
        copy_error(&error, err);
        group_break(parent, &error);
        return NULL;
    }
    call.collective.count = members;
    if (admit(parent, &call, err) || perform(parent, &call, err)) return NULL;
    return call.object ? new_member(parent, members, call.object, call.sequence) : NULL;
}

// One new group after the other; each rank is in one of them at most.
ProcessGroup *pg_split(ProcessGroup *parent, int color, Error *err) {
    ProcessGroup *mine = NULL;
    Error error = {0};
    int32_t own = color, *colors = memory_zalloc((size_t)parent->size * sizeof *colors);
    int *ranks = memory_zalloc((size_t)parent->size * sizeof *ranks);
    pg_run(parent, pg_all_gather(&own, colors, 1, PG_I32), &error);
    for (int first = 0; first < parent->size && error.status == STATUS_OK; first++) {
        int32_t next = colors[first]; // taken once, at its first rank
        int count = 0;
        for (int r = first; r < parent->size; r++) {
            if (colors[r] != next) continue;
            ranks[count++] = r;
            colors[r] = -1;
        }
        if (next < 0) continue;
        ProcessGroup *group = pg_new_subgroup(parent, ranks, count, &error);
        if (group) mine = group;
    }
    free(ranks);
    free(colors);
    if (copy_error(&error, err) == 0) return mine;
    pg_close(mine);
    return NULL;
}

// ---- the flight recorder ---------------------------------------------------------------------

static void write_configured(void *context) {
    ProcessGroup *group = context;
    (void)write_flight(group, NULL, NULL);
}

int pg_set_flight(ProcessGroup *group, const char *folder, const char *pipe, bool say, Error *err) {
    pthread_mutex_lock(&group->mutex);
    int status = flight_recorder_configure(group->flight, folder, say, err);
    pthread_mutex_unlock(&group->mutex);
    flight_trigger_close(group->trigger);
    group->trigger = NULL;
    if (status || !pipe || !*pipe) return status;
    char *path = memory_format("%s%d.pipe", pipe, pg_global_rank(group, group->rank));
    group->trigger = flight_trigger_open(path, write_configured, group, err);
    free(path);
    return group->trigger ? 0 : -1;
}

int pg_write_flight(ProcessGroup *group, const char *folder, Error *err) {
    return write_flight(group, folder, err);
}

// ---- shared memory and the end --------------------------------------------------------------

void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err) {
    PgCall call = {.collective = {.kind = PG_SHARED_ALLOC, .count = bytes, .type = PG_U8}};
    if (admit(group, &call, err) || perform(group, &call, err)) return NULL;
    return call.object;
}

void pg_close(ProcessGroup *group) {
    if (!group) return;
    flight_trigger_close(group->trigger);
    pthread_mutex_lock(&group->mutex);
    group->closing = true;
    pthread_cond_signal(&group->work_ready);
    pthread_mutex_unlock(&group->mutex);
    if (group->thread_started) pthread_join(group->thread, NULL);
    group->backend->close(group->state);
    pthread_cond_destroy(&group->work_over);
    pthread_cond_destroy(&group->work_ready);
    pthread_mutex_destroy(&group->mutex);
    flight_recorder_close(group->flight);
    free(group->global);
    free(group);
}
