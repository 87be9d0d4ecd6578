/* trace.c: the timeline: tracks of spans in memory, written once at the end, and merging the files
 * of several processes, one at a time in memory.
 *
 * Format: the Chrome trace event format. A span is a complete event ("ph": "X") with its begin and
 * length in microseconds; metadata events ("ph": "M") name the process and the tracks. pid is the
 * rank and tid the track, so events of several ranks can be merged. A bucket that became ready is
 * an instant ("ph": "i"), and the arrow from there to its all-reduce a pair of flow events ("ph":
 * "s" and "f") with an id of their own.
 */
#include "common/base/trace.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/machine.h"
#include "common/base/memory.h"

typedef struct Track {
    char name[48];
    TraceSpan *spans; // [max]
    size_t count, max;
    uint64_t dropped;
} Track;

// Names the clock that the times are read from: equal names in two processes mean one clock.
typedef struct Clock {
    char name[64];
    double marks_us[TRACE_MARKS]; // [mark_count]: times of the same moments in all processes
    int mark_count;
} Clock;

struct Trace {
    int pid;
    char process_name[48];
    Track **tracks; // [track_count]; each its own allocation, so that writers share no cache line
    int track_count;
    Clock clock;
};

Trace *trace_open(int pid, const char *process_name) {
    Trace *trace = memory_zalloc(sizeof *trace);
    trace->pid = pid;
    snprintf(trace->process_name, sizeof trace->process_name, "%s", process_name);
    // A machine's monotonic clock is counted from its boot, which has an id.
    machine_boot_id(trace->clock.name, sizeof trace->clock.name);
    if (strcmp(trace->clock.name, "?") == 0)
        machine_name(trace->clock.name, sizeof trace->clock.name);
    return trace;
}

void trace_close(Trace *trace) {
    if (!trace) return;
    for (int i = 0; i < trace->track_count; i++) {
        free(trace->tracks[i]->spans);
        free(trace->tracks[i]);
    }
    free(trace->tracks);
    free(trace);
}

int trace_track(Trace *trace, const char *name, size_t max_spans) {
    if (!trace) return 0;
    size_t count = (size_t)trace->track_count + 1;
    trace->tracks = memory_grow(trace->tracks, count, sizeof *trace->tracks);
    Track *track = memory_zalloc(sizeof *track);
    snprintf(track->name, sizeof track->name, "%s", name);
    // Zeroing maps every page now, so that recording causes no page fault.
    track->spans = memory_zalloc(max_spans * sizeof *track->spans);
    track->max = max_spans;
    trace->tracks[trace->track_count] = track;
    return trace->track_count++;
}

void trace_span(Trace *trace, int track, const char *name, int64_t number, uint64_t begin_ns,
                uint64_t end_ns) {
    trace_add(trace, track, &(TraceSpan){name, number, begin_ns, end_ns, 0, -1, 0});
}

void trace_add(Trace *trace, int track, const TraceSpan *span) {
    if (!trace) return;
    CHECK(track >= 0 && track < trace->track_count, "track %d of %d", track, trace->track_count);
    Track *t = trace->tracks[track];
    if (t->count == t->max) {
        t->dropped++;
        return;
    }
    t->spans[t->count++] = *span;
}

void trace_mark(Trace *trace) {
    if (!trace) return;
    CHECK(trace->clock.mark_count < TRACE_MARKS, "more than %d marks in a trace", TRACE_MARKS);
    trace->clock.marks_us[trace->clock.mark_count++] = (double)clock_ns() / 1e3;
}

// ---- writing ----------------------------------------------------------------------------------

// Writes the fields that all events begin with. The time is in microseconds, with the ns as
// decimals; metadata have none.
static void begin_event(Json *json, const char *ph, const char *name, int pid, int tid,
                        uint64_t at_ns) {
    json_begin_object(json, NULL);
    json_string(json, "ph", ph);
    json_string(json, "name", name);
    json_integer(json, "pid", pid);
    json_integer(json, "tid", tid);
    if (*ph != 'M') json_number(json, "ts", (double)at_ns / 1e3);
}

static void write_metadata(Json *json, int pid, int tid, const char *what, const char *name) {
    begin_event(json, "M", what, pid, tid, 0);
    json_begin_object(json, "args");
    if (name)
        json_string(json, "name", name);
    else
        json_integer(json, "sort_index", tid);
    json_end_object(json);
    json_end_object(json);
}

static void write_span(Json *json, int pid, int tid, const TraceSpan *span) {
    uint64_t length = span->end_ns > span->begin_ns ? span->end_ns - span->begin_ns : 0;
    begin_event(json, "X", span->name, pid, tid, span->begin_ns);
    json_number(json, "dur", (double)length / 1e3);
    if (span->number >= 0 || span->bucket >= 0 || span->bytes > 0) {
        json_begin_object(json, "args");
        if (span->number >= 0) json_integer(json, "number", span->number);
        if (span->bucket >= 0) json_integer(json, "bucket", span->bucket);
        if (span->bytes > 0) json_integer(json, "bytes", (int64_t)span->bytes);
        json_end_object(json);
    }
    json_end_object(json);
}

// Writes one end of the arrow to a bucket's span; an end binds to the track's span at that time.
static void write_arrow_end(Json *json, const char *ph, int pid, int tid, uint64_t at_ns,
                            int64_t id) {
    begin_event(json, ph, "bucket", pid, tid, at_ns);
    json_string(json, "cat", "bucket");
    json_integer(json, "id", id);
    if (*ph == 'f') json_string(json, "bp", "e"); // the span around it, not the next one
    json_end_object(json);
}

static void write_arrow(Json *json, int pid, int tid, const TraceSpan *span, int64_t id) {
    begin_event(json, "i", "bucket is ready", pid, 0, span->ready_ns);
    json_string(json, "s", "t"); // a mark on its track only
    json_begin_object(json, "args");
    json_integer(json, "bucket", span->bucket);
    json_end_object(json);
    json_end_object(json);
    write_arrow_end(json, "s", pid, 0, span->ready_ns, id);
    write_arrow_end(json, "f", pid, tid, span->begin_ns, id);
}

static void write_events(Json *json, const Trace *trace) {
    int64_t arrows = (int64_t)trace->pid << 32; // so no two processes use one id
    json_begin_array(json, "traceEvents");
    write_metadata(json, trace->pid, 0, "process_name", trace->process_name);
    for (int tid = 0; tid < trace->track_count; tid++) {
        const Track *track = trace->tracks[tid];
        write_metadata(json, trace->pid, tid, "thread_name", track->name);
        write_metadata(json, trace->pid, tid, "thread_sort_index", NULL);
        for (size_t i = 0; i < track->count; i++) {
            write_span(json, trace->pid, tid, &track->spans[i]);
            if (track->spans[i].ready_ns > 0)
                write_arrow(json, trace->pid, tid, &track->spans[i], arrows++);
        }
    }
    json_end_array(json);
}

static void write_about(Json *json, const Clock *clock, uint64_t dropped) {
    json_begin_object(json, "otherData");
    json_integer(json, "dropped_spans", (int64_t)dropped);
    json_string(json, "clock", clock->name);
    json_begin_array(json, "marks_us");
    for (int i = 0; i < clock->mark_count; i++) json_number(json, NULL, clock->marks_us[i]);
    json_end_array(json);
    json_end_object(json);
}

int trace_write(const Trace *trace, const char *path, Error *err) {
    if (!trace) return 0;
    AtomicFile file;
    uint64_t dropped = 0;
    for (int i = 0; i < trace->track_count; i++) dropped += trace->tracks[i]->dropped;
    if (file_begin(&file, path, err) != 0) return -1;
    Json json = {.file = file.file};
    json_begin_object(&json, NULL);
    json_string(&json, "displayTimeUnit", "ms");
    write_about(&json, &trace->clock, dropped);
    write_events(&json, trace);
    json_end_object(&json);
    return file_commit(&file, err);
}

// ---- merging ------------------------------------------------------------------------------------

typedef struct Merging {
    Json json;
    Clock clock; // of the first file
    uint64_t dropped;
} Merging;

static cJSON *parse_trace(const char *path, Error *err) {
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return NULL;
    char *text = NULL;
    size_t room = 0;
    ssize_t length = getdelim(&text, &room, '\0', file);
    fclose(file);
    cJSON *root = length > 0 ? cJSON_ParseWithLength(text, (size_t)length) : NULL;
    free(text);
    if (cJSON_IsArray(cJSON_GetObjectItem(root, "traceEvents"))) return root;
    cJSON_Delete(root);
    return error_null(err, STATUS_USAGE, "%s: is no trace", path);
}

static Clock clock_of(const cJSON *about) {
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(about, "clock"));
    const cJSON *mark;
    Clock clock = {0};
    snprintf(clock.name, sizeof clock.name, "%s", name ? name : "");
    cJSON_ArrayForEach(mark, cJSON_GetObjectItem(about, "marks_us")) {
        if (clock.mark_count < TRACE_MARKS && cJSON_IsNumber(mark))
            clock.marks_us[clock.mark_count++] = mark->valuedouble;
    }
    return clock;
}

// Maps a time of a file's own clock to the first file's.
static double on_first_clock(const Clock *first, const Clock *own, double us) {
    if (strcmp(first->name, own->name) == 0) return us;
    double rate = 1, length = own->marks_us[1] - own->marks_us[0];
    if (first->mark_count > 1 && own->mark_count > 1 && length > 0)
        rate = (first->marks_us[1] - first->marks_us[0]) / length;
    return first->marks_us[0] + (us - own->marks_us[0]) * rate;
}

// Copies a value. (An event has no arrays, booleans or nulls.)
static void write_value(Json *json, const char *key, const cJSON *value) {
    const cJSON *item;
    if (cJSON_IsString(value)) json_string(json, key, value->valuestring);
    if (cJSON_IsNumber(value)) json_number(json, key, value->valuedouble);
    if (!cJSON_IsObject(value)) return;
    json_begin_object(json, key);
    cJSON_ArrayForEach(item, value) write_value(json, item->string, item);
    json_end_object(json);
}

static int merge_file(Merging *merging, const char *path, bool first, Error *err) {
    cJSON *root = parse_trace(path, err), *event;
    if (!root) return -1;
    const cJSON *about = cJSON_GetObjectItem(root, "otherData");
    const cJSON *dropped = cJSON_GetObjectItem(about, "dropped_spans");
    Clock own = clock_of(about), *clock = &merging->clock;
    if (first) *clock = own;
    if (strcmp(own.name, clock->name) != 0 && (own.mark_count == 0 || clock->mark_count == 0)) {
        cJSON_Delete(root);
        return error_set(err, STATUS_USAGE, "%s: is of another machine and has no marks", path);
    }
    if (cJSON_IsNumber(dropped) && dropped->valuedouble > 0 && dropped->valuedouble < 1e15)
        merging->dropped += (uint64_t)dropped->valuedouble;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents")) {
        cJSON *time = cJSON_GetObjectItem(event, "ts");
        if (cJSON_IsNumber(time)) // so it is not NULL: NOLINTNEXTLINE(*NullDereference)
            cJSON_SetNumberValue(time, on_first_clock(clock, &own, time->valuedouble));
        write_value(&merging->json, NULL, event);
    }
    cJSON_Delete(root);
    return 0;
}

int trace_merge(const char *path, const char *const *files, size_t count, Error *err) {
    AtomicFile file;
    int failed = 0;
    if (file_begin(&file, path, err) != 0) return -1;
    Merging merging = {.json = {.file = file.file}};
    json_begin_object(&merging.json, NULL);
    json_string(&merging.json, "displayTimeUnit", "ms");
    json_begin_array(&merging.json, "traceEvents");
    for (size_t i = 0; !failed && i < count; i++)
        failed = merge_file(&merging, files[i], i == 0, err);
    if (failed) {
        file_abandon(&file);
        return -1;
    }
    json_end_array(&merging.json);
    write_about(&merging.json, &merging.clock, merging.dropped);
    json_end_object(&merging.json);
    return file_commit(&file, err);
}

// ---- the ranks of a job -----------------------------------------------------------------------

char *trace_part(const char *path, int rank) {
    return rank == 0 ? memory_format("%s", path) : memory_format("%s.rank%d", path, rank);
}

int trace_merge_ranks(const char *path, int ranks, Error *err) {
    char **parts = memory_zalloc((size_t)ranks * sizeof *parts);
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        parts[count] = trace_part(path, rank);
        if (access(parts[count], F_OK) == 0)
            count++;
        else
            free(parts[count]);
    }
    int failed = trace_merge(path, (const char *const *)parts, (size_t)count, err);
    for (int i = 0; i < count; i++) {
        if (!failed && strcmp(parts[i], path) != 0) unlink(parts[i]);
        free(parts[i]);
    }
    free(parts);
    return failed ? -1 : ranks - count;
}
