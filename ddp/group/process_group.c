/* process_group.c: a group as a whole: made, asked, broken, closed. It is the same for every
 * backend; how bytes travel is theirs.
 */
#include "ddp/group/process_group.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/group/internal.h"

// ---- making -----------------------------------------------------------------------------------

ProcessGroup *pg_new_around(const PgBackend *backend, void *state, int rank, int size,
                            double timeout_s, FlightRecorder *flight) {
    ProcessGroup *group = memory_zalloc(sizeof *group);
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
    return group;
}

// Frees what pg_new_around has made.
static void free_group(ProcessGroup *group) {
    pthread_cond_destroy(&group->work_over);
    pthread_cond_destroy(&group->work_ready);
    pthread_mutex_destroy(&group->mutex);
    flight_recorder_close(group->flight);
    free(group->global);
    free(group);
}

static void write_configured(void *group);

static int open_trigger(ProcessGroup *group, const char *pipe, Error *err) {
    if (!pipe || !*pipe) return 0;
    char *path = memory_format("%s%d.pipe", pipe, group->rank);
    group->trigger = flight_trigger_open(path, write_configured, group, err);
    free(path);
    return group->trigger ? 0 : -1;
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
    if (open_trigger(group, options->flight_pipe, err) == 0) return group;
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

void pg_emulate_link(ProcessGroup *group, Link *link) {
    CHECK(!group->thread_started, "rank %d: a link for a group that is in use", group->rank);
    group->link = link;
}

int pg_use_fast_sums(ProcessGroup *group, Error *err) {
    if (!group->backend->use_fast_sums)
        return error_set(err, STATUS_USAGE,
                         "backend %s has no faster sums than those in rank order",
                         group->backend->name);
    group->fast_sums = true;
    return group->backend->use_fast_sums(group->state);
}

bool pg_sums_in_rank_order(const ProcessGroup *group) {
    return !group->fast_sums;
}

void pg_set_trace(ProcessGroup *group, Trace *trace, int track) {
    pthread_mutex_lock(&group->mutex);
    group->trace = trace;
    group->track = track;
    pthread_mutex_unlock(&group->mutex);
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

// A copy of the flight recorder is written, because files are no business to hold a mutex for.
int pg_write_flight(ProcessGroup *group, const char *folder, Error *err) {
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

// See pg_break. False if there was an error already.
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
    return break_sound(group, &named);
}

static void write_configured(void *group) {
    (void)pg_write_flight(group, NULL, NULL);
}

// ---- shared memory and the end ----------------------------------------------------------------

void *pg_shared_alloc(ProcessGroup *group, size_t bytes, Error *err) {
    PgCall call = {.operation = PG_SHARED_ALLOC, .collective = {.count = bytes, .type = PG_U8}};
    if (pg_admit(group, &call, err) != 0 || pg_perform(group, &call, err) != 0) return NULL;
    return call.object;
}

void *pg_peer_memory(ProcessGroup *group, const void *mine, int rank) {
    if (!group->backend->peer_memory || group->link) return NULL;
    return group->backend->peer_memory(group->state, mine, rank);
}

void pg_count_moved(ProcessGroup *group, uint64_t bytes) {
    pthread_mutex_lock(&group->mutex);
    group->totals.moved_bytes += bytes;
    pthread_mutex_unlock(&group->mutex);
}

void pg_close(ProcessGroup *group) {
    if (!group) return;
    flight_trigger_close(group->trigger);
    pg_stop_thread(group);
    group->backend->close(group->state);
    if (group->observer.close) group->observer.close(group->observer.context);
    free_group(group);
}
