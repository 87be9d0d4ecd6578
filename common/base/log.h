/* log.h: messages and the progress bar on stderr; data on stdout, one `key=value` line per logged
 * step.
 *
 * By default only the main rank prints; the RunLog of the others is quiet. The progress bar, with
 * rate and remaining time, is drawn if stderr is a terminal, at most ten times a second.
 * DDPRUN_COLUMNS=N: stderr is a pipe to ddprun, which draws on a terminal of N columns.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct RunLog {
    bool quiet;       // print nothing (not the main rank)
    bool bar_allowed; // stderr is a terminal, or a pipe to ddprun, which has one
    bool bar_drawn;
    uint64_t bar_start_ns, bar_last_ns;
    size_t bar_first; // the bar's first `done`; not 0 in a resumed run
} RunLog;

RunLog log_open(bool quiet);
// Removes the bar and prints one line on stderr.
void log_say(RunLog *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Removes the bar, prints one line of data on stdout and flushes it.
void log_data(RunLog *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Flushes stdout. Returns 0 if every line since the start was written, or -1 with err filled (a
// full disk, a closed pipe).
int log_check_stdout(Error *err);
// Draws the bar for `done` of `total` items; `what` is their name ("steps"). samples_per_item > 0
// adds samples/s.
void log_progress(RunLog *log, size_t done, size_t total, const char *what,
                  double samples_per_item);
void log_close(RunLog *log); // removes the bar

#endif
