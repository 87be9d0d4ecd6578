/* watch.c: the watched calls: each makes the real call and logs it, and fails where a check asks
 * for a failure.
 */
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/sync.h"
#include "ddp/group/group_internal.h"
#include "tutorials/grading/grader.h"

#define BROKEN "the connection to the other ranks was lost"

// Thread-local, because the student's calls do not pass the rank that makes them.
static _Thread_local WatchLog *current_log;
static _Thread_local size_t calls;       // collectives so far
static _Thread_local size_t broken_call; // number of the collective that fails, from 1; 0: none
static _Thread_local bool fails_in_wait;
static _Thread_local const PgWork *broken_work; // in flight; its pg_work_wait must fail

void watch_begin(WatchLog *log) {
    current_log = log;
}

void watch_break(size_t broken, bool in_wait) {
    broken_call = broken;
    fails_in_wait = in_wait;
}

static bool is_misaligned(const Collective *collective) {
    const size_t bytes = pg_type_bytes(collective->type);
    return (uintptr_t)collective->send % bytes != 0 || (uintptr_t)collective->receive % bytes != 0;
}

static void write_down(WatchEvent event) {
    if (current_log && is_misaligned(&event.collective)) current_log->misaligned = true;
    if (current_log && current_log->count < WATCH_MOST)
        current_log->events[current_log->count++] = event;
}

static size_t collective_bytes(const Collective *collective) {
    return collective->count * pg_type_bytes(collective->type);
}

// ---- memory: the student's file's malloc and free -----------------------------------------------

static SyncWord blocks; // allocated, less freed; of all threads

static void count_blocks(int more) {
    uint32_t now;
    do now = sync_load(&blocks);
    while (!sync_claim(&blocks, now, now + (uint32_t)more));
}

long watch_blocks(void) {
    return (int32_t)sync_load(&blocks);
}

void *watched_malloc(size_t bytes) {
    count_blocks(1);
    return malloc(bytes);
}

void *watched_calloc(size_t count, size_t bytes) {
    count_blocks(1);
    return calloc(count, bytes);
}

void *watched_realloc(void *memory, size_t bytes) {
    if (!memory) count_blocks(1);
    return realloc(memory, bytes);
}

void *watched_memory_zalloc(size_t bytes) {
    count_blocks(1);
    return memory_zalloc(bytes);
}

void watched_free(void *memory) {
    if (memory) count_blocks(-1);
    free(memory);
}

// ---- collectives --------------------------------------------------------------------------------

// Logs the group's message if it will reject the collective, an error of this rank alone.
static void note_refusal(const ProcessGroup *group, const Collective *collective) {
    Error err = {0};
    if (!current_log || current_log->refused[0]) return;
    (void)pg_collective_check(collective, pg_rank(group), pg_size(group), &err);
    snprintf(current_log->refused, sizeof current_log->refused, "%.239s", err.message);
}

// Counts a collective. Returns whether it must fail: it runs, so that no other rank waits for it,
// but returns an error.
static bool is_next_to_fail(void) {
    return ++calls == broken_call;
}

int watched_pg_run(ProcessGroup *group, Collective collective, Error *err) {
    note_refusal(group, &collective);
    write_down((WatchEvent){
        .kind = WATCH_RUN, .collective = collective, .bytes = collective_bytes(&collective)});
    int status = pg_run(group, collective, err);
    return is_next_to_fail() ? error_set(err, STATUS_FAILED, BROKEN) : status;
}

PgWork *watched_pg_start(ProcessGroup *group, Collective collective, Error *err) {
    note_refusal(group, &collective);
    write_down((WatchEvent){
        .kind = WATCH_START, .collective = collective, .bytes = collective_bytes(&collective)});
    bool fails = is_next_to_fail();
    if (fails && !fails_in_wait) {
        pg_run(group, collective, NULL);
        error_set(err, STATUS_FAILED, BROKEN);
        return NULL;
    }
    PgWork *work = pg_start(group, collective, err);
    if (fails) broken_work = work;
    return work;
}

int watched_pg_work_wait(PgWork *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err) {
    write_down((WatchEvent){.kind = WATCH_WAIT});
    if (!work) {
        if (current_log) current_log->waited_for_null = true;
        return error_set(err, STATUS_FAILED, BROKEN);
    }
    if (!work->outstanding) return 0; // a second wait: the grader reports it, a group would abort
    bool fails = work == broken_work;
    int status = pg_work_wait(work, begin_ns, end_ns, err);
    if (!fails) return status;
    broken_work = NULL;
    return error_set(err, STATUS_FAILED, BROKEN);
}

void watched_device_copy(Device *to, void *destination, Device *from, const void *source,
                         size_t bytes) {
    write_down((WatchEvent){.kind = WATCH_COPY, .from = from, .to = to, .bytes = bytes});
    device_copy(to, destination, from, source, bytes);
}

static bool is_of_kind(const WatchEvent *event, CollectiveKind kind) {
    return (event->kind == WATCH_RUN || event->kind == WATCH_START) &&
           event->collective.kind == kind;
}

size_t watch_events(const WatchLog *log, WatchKind kind) {
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) count += log->events[i].kind == kind;
    return count;
}

size_t watch_calls(const WatchLog *log) {
    return watch_events(log, WATCH_RUN) + watch_events(log, WATCH_START);
}

size_t watch_count(const WatchLog *log, CollectiveKind kind) {
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) count += is_of_kind(&log->events[i], kind);
    return count;
}

size_t watch_bytes(const WatchLog *log, CollectiveKind kind) {
    size_t bytes = 0;
    for (size_t i = 0; i < log->count; i++)
        if (is_of_kind(&log->events[i], kind)) bytes += log->events[i].bytes;
    return bytes;
}
