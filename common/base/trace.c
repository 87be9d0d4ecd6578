/* trace.c: the timeline: tracks of spans in memory, written once at the end.
 *
 * Format: the Chrome trace event format. A span is a complete event ("ph": "X") with its begin and
 * length in microseconds; metadata events ("ph": "M") name the process and the tracks. pid is the
 * rank and tid the track, so files of several ranks can be concatenated into one timeline.
 */
#include "common/base/trace.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"

typedef struct Span {
    const char *name; // not owned
    int64_t number;
    uint64_t begin_ns, end_ns;
} Span;

typedef struct Track {
    char name[48];
    Span *spans; // [max]
    size_t count, max;
    uint64_t dropped;
} Track;

struct Trace {
    int pid;
    char process_name[48];
    Track **tracks; // [track_count]; each its own allocation, so that writers share no cache line
    int track_count;
};

Trace *trace_open(int pid, const char *process_name) {
    Trace *trace = memory_zalloc(sizeof *trace);
    trace->pid = pid;
    snprintf(trace->process_name, sizeof trace->process_name, "%s", process_name);
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
    // Zeroing touches every page now, so that recording never waits for one.
    track->spans = memory_zalloc(max_spans * sizeof *track->spans);
    track->max = max_spans;
    trace->tracks[trace->track_count] = track;
    return trace->track_count++;
}

void trace_span(Trace *trace, int track, const char *name, int64_t number, uint64_t begin_ns,
                uint64_t end_ns) {
    if (!trace) return;
    CHECK(track >= 0 && track < trace->track_count, "track %d of %d", track, trace->track_count);
    Track *t = trace->tracks[track];
    if (t->count == t->max) {
        t->dropped++;
        return;
    }
    t->spans[t->count++] = (Span){name, number, begin_ns, end_ns};
}

static void write_metadata(Json *json, int pid, int tid, const char *what, const char *name) {
    json_begin_object(json, NULL);
    json_string(json, "ph", "M");
    json_string(json, "name", what);
    json_integer(json, "pid", pid);
    json_integer(json, "tid", tid);
    json_begin_object(json, "args");
    if (name) {
        json_string(json, "name", name);
    } else {
        json_integer(json, "sort_index", tid);
    }
    json_end_object(json);
    json_end_object(json);
}

static void write_span(Json *json, int pid, int tid, const Span *span) {
    uint64_t length = span->end_ns > span->begin_ns ? span->end_ns - span->begin_ns : 0;
    json_begin_object(json, NULL);
    json_string(json, "ph", "X");
    json_string(json, "name", span->name);
    json_integer(json, "pid", pid);
    json_integer(json, "tid", tid);
    json_number(json, "ts", (double)span->begin_ns / 1e3); // us, with the ns as decimals
    json_number(json, "dur", (double)length / 1e3);
    if (span->number >= 0) {
        json_begin_object(json, "args");
        json_integer(json, "number", span->number);
        json_end_object(json);
    }
    json_end_object(json);
}

static void write_events(Json *json, const Trace *trace) {
    json_begin_array(json, "traceEvents");
    write_metadata(json, trace->pid, 0, "process_name", trace->process_name);
    for (int tid = 0; tid < trace->track_count; tid++) {
        const Track *track = trace->tracks[tid];
        write_metadata(json, trace->pid, tid, "thread_name", track->name);
        write_metadata(json, trace->pid, tid, "thread_sort_index", NULL);
        for (size_t i = 0; i < track->count; i++) {
            write_span(json, trace->pid, tid, &track->spans[i]);
        }
    }
    json_end_array(json);
}

int trace_write(const Trace *trace, const char *path, Error *err) {
    if (!trace) return 0;
    AtomicFile file;
    if (file_begin(&file, path, err) != 0) return -1;
    uint64_t dropped = 0;
    for (int i = 0; i < trace->track_count; i++) dropped += trace->tracks[i]->dropped;
    Json json = {.file = file.file};
    json_begin_object(&json, NULL);
    json_string(&json, "displayTimeUnit", "ms");
    json_begin_object(&json, "otherData");
    json_integer(&json, "dropped_spans", (int64_t)dropped);
    json_end_object(&json);
    write_events(&json, trace);
    json_end_object(&json);
    return file_commit(&file, err);
}
