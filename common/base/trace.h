/* trace.h: the timeline of devices, streams and communicators, in the Chrome trace format, which
 * Perfetto (ui.perfetto.dev) and bench/report/traces.py read. Each process writes a file;
 * trace_merge merges them.
 *
 * A track has one writing thread at a time, and its spans nest. trace_track allocates; recording a
 * span allocates nothing and takes no lock. When a track is full, new spans are dropped and
 * counted.
 */
#ifndef COMMON_BASE_TRACE_H
#define COMMON_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct Trace Trace; // NULL is a trace that records nothing

// pid is the rank, the viewer's process id; process_name is the name that it shows ("rank 1",
// "dp").
Trace *trace_open(int pid, const char *process_name);
void trace_close(Trace *trace);

// Adds a track ("main", "cpu:1", "comm"); returns its number. Not thread-safe: add tracks before
// the threads that write them start.
int trace_track(Trace *trace, const char *name, size_t max_spans);

// Records [begin_ns, end_ns) of clock_ns on a track. name must be a string that outlives the
// trace (a literal); number is an argument shown with the span (a step), -1 for none.
void trace_span(Trace *trace, int track, const char *name, int64_t number, uint64_t begin_ns,
                uint64_t end_ns);

// A span of a communicator.
typedef struct TraceSpan {
    const char *name; // as in trace_span, and so are the next three
    int64_t number;
    uint64_t begin_ns, end_ns;
    uint64_t bytes; // of one rank's buffer; 0: not shown
    int bucket;     // of gradients, from 0; -1: none
    // When the bucket's last gradient was ready: an arrow is drawn from that time on the trace's
    // first track to this span. 0: no arrow.
    uint64_t ready_ns;
} TraceSpan;
void trace_add(Trace *trace, int track, const TraceSpan *span);

// Records the time. Every process calls it twice, right after the same barriers at the beginning
// and at the end of a run: trace_merge maps the clocks of different machines by these marks.
enum { TRACE_MARKS = 2 };
void trace_mark(Trace *trace);

// Writes all spans as JSON. Returns 0, or -1 with err filled.
int trace_write(const Trace *trace, const char *path, Error *err);

// ---- one timeline of several processes ---------------------------------------------------------
//
// Processes of one machine share a clock. Times of another machine are mapped linearly to the first
// file's clock, so that the two marks of trace_mark coincide.

// Writes the events of all files to path, which may be one of them. Returns 0, or -1 with err
// filled if a file cannot be read, is no trace, or has another clock and no marks.
int trace_merge(const char *path, const char *const *files, size_t count, Error *err);

// The path of a rank's own trace: PATH for rank 0, PATH.rank1 for rank 1, ... The caller frees it.
char *trace_part(const char *path, int rank);
// Merges the files of a job's ranks into PATH and removes them. Returns the number of ranks whose
// file is not on this machine, or -1 with err filled.
int trace_merge_ranks(const char *path, int ranks, Error *err);

#endif
