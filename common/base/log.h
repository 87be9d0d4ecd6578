/* log.h: talk goes to stderr. stdout is for data: one `key=value` line per logged step.
 *
 * Only the main rank speaks unless asked; the others' Log is quiet. On a terminal a progress bar
 * with rate and remaining time is redrawn in place at most ten times a second; elsewhere nothing is
 * drawn and the plain lines tell the story. DDPRUN_COLUMNS=N says that stderr is a pipe to ddprun,
 * which draws on a terminal of N columns.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct Log {
    bool quiet;       // say nothing (not the main rank)
    bool bar_allowed; // stderr is a terminal, or ddprun brings what is drawn to one
    bool bar_drawn;
    uint64_t bar_start_ns, bar_last_ns;
    size_t bar_first; // where `done` stood when the bar began (a resumed run)
} Log;

Log log_open(bool quiet);
// Prints one line on stderr, after removing the bar.
void log_say(Log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Prints one data line on stdout, flushed, after removing the bar.
void log_data(Log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Whether all that was printed on stdout has arrived. Returns 0, or -1 with err filled: on a full
// disk, or in a pipe that nobody reads, lines get lost without a word.
int log_check_stdout(Error *err);
// Draws the bar: `done` of `total` items are done, which `what` names ("steps"). A samples_per_item
// above 0 adds samples/s.
void log_progress(Log *log, size_t done, size_t total, const char *what, double samples_per_item);
void log_close(Log *log); // leaves the terminal clean

#endif
