/* process_group.c: a group as a whole: creation, queries, the first error, closing. Independent of
 * the backend.
 */
#include "ddp/group/process_group.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "ddp/group/group_internal.h"

// ---- the groups of this process -------------------------------------------------------

// The open ones, in which pg_close detects a second close, and the closed ones. A closed group is
// broken: a call after pg_close finds that error in memory that is kept for the next group.
static pthread_mutex_t lists_mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static ProcessGroup *open_groups, *closed_groups; // under lists_mutex

static const PgBackend closed_backend = {.name = "closed"};

static void unlock_lists(void) {
    CHECK(pthread_mutex_unlock(&lists_mutex) == 0, "the lists of groups are not locked");
}

static void push(ProcessGroup **list, ProcessGroup *group) {
    pthread_mutex_lock(&lists_mutex);
    group->next = *list;
    *list = group;
    unlock_lists();
}

void pg_list_open(ProcessGroup *group) {
    push(&open_groups, group);
}

bool pg_unlist_open(const ProcessGroup *group) {
    pthread_mutex_lock(&lists_mutex);
    ProcessGroup **at = &open_groups;
    while (*at && *at != group) at = &(*at)->next;
    bool found = *at;
    if (found) *at = group->next;
    unlock_lists();
    return found;
}

// Returns the memory of a closed group, or new memory.
static ProcessGroup *take_memory(void) {
    pthread_mutex_lock(&lists_mutex);
    ProcessGroup *group = closed_groups;
    if (group) closed_groups = group->next;
    unlock_lists();
    if (!group) return memory_zalloc(sizeof *group);
    CHECK(pthread_mutex_destroy(&group->mutex) == 0, "the mutex of a closed group is held");
    memset(group, 0, sizeof *group);
    return group;
}

static void keep_closed(ProcessGroup *group) {
    const int rank = group->rank, size = group->size;
    memset(group, 0, sizeof *group);
    group->backend = &closed_backend;
    group->rank = rank;
    group->size = size;
    pthread_mutex_init(&group->mutex, NULL);
    error_set(&group->error, STATUS_FAILED,
              "rank %d: the group is closed: a call after pg_close(group)", rank);
    push(&closed_groups, group);
}

// ---- making -----------------------------------------------------------------------------------

ProcessGroup *pg_new_around(const PgBackend *backend, void *state, int rank, int size,
                            double timeout_s, FlightRecorder *flight) {
    ProcessGroup *group = take_memory();
    group->backend = backend;
    group->state = state;
    group->rank = rank;
    group->size = size;
    group->timeout_s = timeout_s;
    group->flight = flight;
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->work_ready, NULL);
    pthread_cond_init(&group->work_over, NULL);
    for (size_t i = 0; i < PG_MAX_WORKS; i++) {
        group->works[i].group = group;
        group->works[i].next = group->spare;
        group->spare = &group->works[i];
    }
    pg_list_open(group);
    return group;
}

// Frees the resources of pg_new_around.
static void free_group(ProcessGroup *group) {
    (void)pg_unlist_open(group);
    pthread_cond_destroy(&group->work_over);
    pthread_cond_destroy(&group->work_ready);
    CHECK(pthread_mutex_destroy(&group->mutex) == 0, "rank %d: the mutex is held", group->rank);
    flight_recorder_close(group->flight);
    free(group->global);
    keep_closed(group);
}

static void write_configured(void *group) {
    (void)pg_write_flight(group, NULL, NULL);
}

ProcessGroup *pg_new(const PgBackend *backend, void *state, int rank, int size,
                     const PgOptions *options, Error *err) {
    FlightRecorder *flight =
        flight_recorder_open("world", options->flight_folder, options->flight_say, err);
    if (!flight) {
        error_prefix(err, "rank %d", rank);
        return NULL;
    }
    ProcessGroup *group = pg_new_around(backend, state, rank, size, options->timeout_s, flight);
    group->observer = options->observer;
    group->dry = options->dry;
    if (!options->flight_pipe || !*options->flight_pipe) return group;
    char *path = memory_format("%s%d.pipe", options->flight_pipe, rank);
    group->trigger = flight_trigger_open(path, write_configured, group, err);
    free(path);
    if (group->trigger) return group;
    error_prefix(err, "rank %d", rank);
    free_group(group);
    return NULL;
}

// ---- asking -----------------------------------------------------------------------------------

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

void pg_emulate_link(ProcessGroup *group, DeviceLink *link) {
    CHECK(!group->thread_started, "rank %d: a link for a group that is in use", group->rank);
    group->link = link;
}

int pg_use_fast_sums(ProcessGroup *group, Error *err) {
    if (!group->backend->use_fast_sums)
        return error_set(err, STATUS_USAGE,
                         "backend %s has no faster sums than those in rank order",
                         group->backend->name);
    return group->backend->use_fast_sums(group->state);
}

void pg_set_trace(ProcessGroup *group, Trace *trace, int track) {
    pthread_mutex_lock(&group->mutex);
    group->trace = trace;
    group->track = track;
    pthread_mutex_unlock(&group->mutex);
}

void pg_enter(ProcessGroup *group, const char *phase, uint64_t step) {
    if (!group || !group->observer.enters) return;
    group->observer.enters(group->observer.context, phase, step);
}

// ---- the first error ------------------------------------------------------------------------

int pg_copy_error(const Error *from, Error *to) {
    return from->status == STATUS_OK ? 0 : error_set(to, from->status, "%s", from->message);
}

int pg_check_sound(ProcessGroup *group, Error *err) {
    pthread_mutex_lock(&group->mutex);
    int status = pg_copy_error(&group->error, err);
    pthread_mutex_unlock(&group->mutex);
    return status;
}

// Writes from a copy, so that no file access happens with the mutex held.
int pg_write_flight(ProcessGroup *group, const char *folder, Error *err) {
    if (!group->flight) return pg_check_sound(group, err); // closed
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

// Like pg_break. Returns false if the group was broken before.
static bool break_sound(ProcessGroup *group, const Error *cause) {
    pthread_mutex_lock(&group->mutex);
    bool sound = group->error.status == STATUS_OK;
    pg_copy_error(cause, &group->error);
    pthread_mutex_unlock(&group->mutex);
    if (!sound) return false;
    group->backend->abort(group->state, cause->message);
    (void)pg_write_flight(group, NULL, NULL);
    return true;
}

int pg_break(ProcessGroup *group, const Error *cause) {
    (void)break_sound(group, cause);
    return -1;
}

bool pg_abort(ProcessGroup *group, const Error *cause) {
    Error named = *cause;
    error_prefix(&named, "rank %d", group->rank);
    bool first = break_sound(group, &named);
    if (first && group->observer.fails) group->observer.fails(group->observer.context);
    return first;
}

// ---- shared memory and the end ----------------------------------------------------------------

void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err) {
    PgCall call = {.operation = PG_SHARED_ALLOC,
                   .collective = {.count = bytes, .type = PG_U8},
                   .dry = group->dry};
    if (pg_admit(group, &call, err) != 0 || pg_perform(group, &call, err) != 0) return NULL;
    pthread_mutex_lock(&group->mutex);
    group->totals.shared_bytes += bytes;
    pthread_mutex_unlock(&group->mutex);
    return call.object;
}

void *pg_peer_memory(ProcessGroup *group, const void *mine, int rank) {
    CHECK(rank >= 0 && rank < group->size, "rank %d of %d", rank, group->size);
    if (!group->backend->peer_memory || group->link || group->dry) return NULL;
    return group->backend->peer_memory(group->state, mine, rank);
}

void pg_count_moved(ProcessGroup *group, uint64_t bytes) {
    pthread_mutex_lock(&group->mutex);
    group->totals.moved_bytes += bytes;
    pthread_mutex_unlock(&group->mutex);
}

void pg_hold(ProcessGroup *group) {
    group->holds++;
}
void pg_release(ProcessGroup *group) {
    group->holds--;
}

void pg_close(ProcessGroup *group) {
    if (!group) return;
    CHECK(pg_unlist_open(group), "pg_close: the group is closed already");
    CHECK(group->holds == 0,
          "rank %d: pg_close: a wrapper uses the group: close the wrapper's module first",
          group->rank);
    flight_trigger_close(group->trigger);
    pg_stop_thread(group);
    group->backend->close(group->state);
    if (group->observer.close) group->observer.close(group->observer.context);
    free_group(group);
}
