/* process_group.c: the part of a ProcessGroup that is the same for every backend.
 *
 * One thread owns the handle and issues the calls. pg_start puts a Work at the end of the queue of
 * the communication thread; pg_run waits until that queue has run empty and then works in the
 * caller's thread, which saves the hand-over. So at any moment at most one thread is inside the
 * backend, and the order of issue is the order of execution. No call takes memory: Works come from
 * a pool.
 *
 * Invariant: `issued - finished` Works are queued or running; all fields under `mutex` are read and
 * written only while it is held, and nobody holds it while the backend works. What a call's
 * arguments must be is in pg_collective.c; how bytes travel is the backend's.
 */
#include "ddp/process_group.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/pg_backend.h"

struct Work {
    ProcessGroup *group;
    PgCall call;
    uint64_t begin_ns, end_ns;
    bool done, failed; // under the group's mutex
    Work *next;        // in the queue or in the free list
};

struct ProcessGroup {
    const PgBackend *backend;
    void *state;
    int rank, size;
    double timeout_s;
    uint64_t sequence; // the owner's thread only
    bool thread_started;
    pthread_t thread;
    Trace *trace;
    int track;
    PgObserver observe;
    void *observe_context;

    pthread_mutex_t mutex;     // protects what follows
    pthread_cond_t work_ready; // the queue has work, or closing
    pthread_cond_t work_over;  // a Work is done
    Work *first, *last, *spare;
    uint64_t issued, finished; // Works
    uint64_t moved_bytes;
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
const char *pg_backend(const ProcessGroup *group) {
    return group->backend->name;
}
uint64_t pg_sequence(const ProcessGroup *group) {
    return group->sequence;
}

uint64_t pg_moved_bytes(const ProcessGroup *group) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&group->mutex;
    pthread_mutex_lock(mutex);
    uint64_t bytes = group->moved_bytes;
    pthread_mutex_unlock(mutex);
    return bytes;
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

// Breaks the group, here and on the other ranks, which would otherwise wait for this one.
static int group_break(ProcessGroup *group, const Error *cause) {
    pthread_mutex_lock(&group->mutex);
    copy_error(cause, &group->error); // an Error keeps the first message
    pthread_mutex_unlock(&group->mutex);
    group->backend->abort(group->state, cause->message);
    return -1;
}

// ---- carrying out ---------------------------------------------------------------------------

static uint64_t begin_call(ProcessGroup *group, PgCall *call) {
    if (group->observe)
        group->observe(group->observe_context, call->sequence, pg_kind_name(call->collective.kind));
    uint64_t now = clock_ns();
    call->timeout_s = group->timeout_s;
    call->deadline_ns = now + (uint64_t)(group->timeout_s * 1e9);
    return now;
}

// Runs the call in this thread. On failure the group is broken and holds the error.
static int run_call(ProcessGroup *group, PgCall *call, uint64_t *begin_ns, uint64_t *end_ns) {
    Error error = {0};
    uint64_t moved = 0;
    *begin_ns = *end_ns = clock_ns();
    if (group_check(group, NULL)) return -1;
    *begin_ns = begin_call(group, call);
    int status = group->backend->run(group->state, call, &moved, &error);
    *end_ns = clock_ns();
    trace_span(group->trace, group->track, pg_kind_name(call->collective.kind),
               (int64_t)call->sequence, *begin_ns, *end_ns);
    pthread_mutex_lock(&group->mutex);
    group->moved_bytes += moved;
    pthread_mutex_unlock(&group->mutex);
    return status ? group_break(group, &error) : 0;
}

// Takes the next Work; NULL when the group is closing and the queue is empty.
static Work *next_work(ProcessGroup *group) {
    pthread_mutex_lock(&group->mutex);
    // Not a wait for a peer: the owner ends it with the next pg_start, or with pg_close.
    while (!group->first && !group->closing) pthread_cond_wait(&group->work_ready, &group->mutex);
    Work *work = group->first;
    if (work) group->first = work->next;
    if (!group->first) group->last = NULL;
    pthread_mutex_unlock(&group->mutex);
    return work;
}

static void *communication_thread(void *context) {
    ProcessGroup *group = context;
    for (Work *work = next_work(group); work; work = next_work(group)) {
        int status = run_call(group, &work->call, &work->begin_ns, &work->end_ns);
        pthread_mutex_lock(&group->mutex);
        work->failed = status != 0;
        work->done = true;
        group->finished++;
        pthread_cond_broadcast(&group->work_over);
        pthread_mutex_unlock(&group->mutex);
    }
    return NULL;
}

// ---- issuing --------------------------------------------------------------------------------

static bool is_pairwise(CollectiveKind kind) {
    return kind == PG_SEND || kind == PG_RECV;
}

// Checks and numbers a call. A call that this rank must refuse breaks the group: the others may
// have made the same call rightly, and wait.
static int issue(ProcessGroup *group, const Collective *collective, PgCall *call, Error *err) {
    if (group_check(group, err)) return -1;
    Error error = {0};
    if (pg_collective_check(collective, group->rank, group->size, &error)) {
        copy_error(&error, err);
        return group_break(group, &error);
    }
    uint64_t sequence = is_pairwise(collective->kind) ? 0 : ++group->sequence;
    *call = (PgCall){.collective = *collective, .sequence = sequence};
    return 0;
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

int pg_run(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call;
    uint64_t begin_ns, end_ns;
    if (issue(group, &collective, &call, err)) return -1;
    drain(group);
    if (run_call(group, &call, &begin_ns, &end_ns)) return group_check(group, err);
    return 0;
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

// Queues the call, with the mutex held; NULL if the pool is empty.
static Work *enqueue(ProcessGroup *group, const PgCall *call) {
    Work *work = group->spare;
    if (!work) return NULL;
    group->spare = work->next;
    work->call = *call;
    work->done = work->failed = false;
    work->next = NULL;
    if (group->last)
        group->last->next = work;
    else
        group->first = work;
    group->last = work;
    group->issued++;
    pthread_cond_signal(&group->work_ready);
    return work;
}

Work *pg_start(ProcessGroup *group, Collective collective, Error *err) {
    PgCall call;
    if (issue(group, &collective, &call, err)) return NULL;
    Error error = {0};
    Work *work = NULL;
    if (!start_thread(group, &error)) {
        pthread_mutex_lock(&group->mutex);
        work = enqueue(group, &call);
        pthread_mutex_unlock(&group->mutex);
        if (work) return work;
        error_set(&error, STATUS_FAILED, "rank %d: more than %d collectives are outstanding",
                  group->rank, PG_MAX_WORKS);
    }
    group_break(group, &error);
    copy_error(&error, err);
    return NULL;
}

int work_wait(Work *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err) {
    ProcessGroup *group = work->group;
    pthread_mutex_lock(&group->mutex);
    while (!work->done) wait_over(group);
    int status = work->failed ? copy_error(&group->error, err) : 0;
    if (begin_ns) *begin_ns = work->begin_ns;
    if (end_ns) *end_ns = work->end_ns;
    work->next = group->spare;
    group->spare = work;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

bool work_done(const Work *work) {
    pthread_mutex_lock(&work->group->mutex);
    bool done = work->done;
    pthread_mutex_unlock(&work->group->mutex);
    return done;
}

// ---- shared memory and the end --------------------------------------------------------------

void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err) {
    drain(group);
    if (group_check(group, err)) return NULL;
    PgCall call = {.collective = {.kind = PG_SHARED_ALLOC, .count = bytes, .type = PG_U8},
                   .sequence = ++group->sequence};
    begin_call(group, &call);
    Error error = {0};
    void *memory = group->backend->shared_alloc(group->state, &call, &error);
    if (!memory) {
        copy_error(&error, err);
        group_break(group, &error);
    }
    return memory;
}

void pg_shared_free(ProcessGroup *group, void *memory) {
    if (!memory) return;
    drain(group);
    PgCall call = {.collective = {.kind = PG_SHARED_FREE}};
    bool broken = group_check(group, NULL) != 0;
    if (!broken) {
        call.sequence = ++group->sequence;
        begin_call(group, &call);
    }
    Error error = {0};
    if (group->backend->shared_free(group->state, broken ? NULL : &call, memory, &error))
        group_break(group, &error);
}

void pg_close(ProcessGroup *group) {
    if (!group) return;
    pthread_mutex_lock(&group->mutex);
    group->closing = true;
    pthread_cond_signal(&group->work_ready);
    pthread_mutex_unlock(&group->mutex);
    if (group->thread_started) pthread_join(group->thread, NULL);
    group->backend->close(group->state);
    pthread_cond_destroy(&group->work_over);
    pthread_cond_destroy(&group->work_ready);
    pthread_mutex_destroy(&group->mutex);
    free(group);
}
