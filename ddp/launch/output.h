/* output.h: forwards the ranks' stdout and stderr to the console and to log files.
 *
 * Each rank writes into two pipes, which the launcher reads. Lines are written to the console
 * whole, with the prefix "[RANK]: "; rank 0's stdout has none, because it is the job's data. A line
 * longer than 1 MiB is split. On a terminal rank 0's progress bar stays below the lines.
 *
 * Only output_flush blocks. When the console accepts no bytes, they are queued, up to 4 MiB; then
 * the pipes are not read, and the ranks block in write while the supervision continues.
 * One thread uses an Output.
 */
#ifndef DDP_LAUNCH_OUTPUT_H
#define DDP_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "ddp/launch/launcher.h"

enum { OUTPUT_POLL_MAX = 2 * LAUNCH_RANKS_MAX + 2 }; // each rank's pipes, and both consoles

typedef struct Output Output;

Output *output_open(const LaunchOptions *options, Error *err);
void output_close(Output *output);

// Numbers the streams: local rank r is rank first_rank + r in this attempt. Creates its
// log_dir/attempt_K/RANK/{stdout,stderr}.log. 0, or -1 with err filled.
int output_begin(Output *output, int attempt, int first_rank, Error *err);
// Forwards these pipes of the rank from now on. Takes both descriptors (read ends, non-blocking).
void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd);
// Drains the pipes, then closes pipes and files. A write end that a stray grandchild still holds is
// not waited for.
void output_end(Output *output);

// Fills entries with the descriptors to poll, at most OUTPUT_POLL_MAX; returns how many.
size_t output_poll(const Output *output, struct pollfd *entries);
// Reads and writes as much as the descriptors accept without blocking.
void output_pump(Output *output);
// Reads all that this rank has written until now, so that output_last_words is complete.
void output_drain(Output *output, int local_rank);
// After output_end: blocks until both consoles' queues are empty, at most this many seconds.
// Returns the errno of a failed write to standard output, whose lines are lost; 0: none failed.
int output_flush(Output *output, double seconds);

// Writes a line of the launcher's own to stderr: "ddprun: ...".
void output_say(Output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The last line on the rank's stderr that is not blank, unprintable bytes as '?'; "" if none.
const char *output_last_words(const Output *output, int local_rank);
// Whether the console shows an error line with the rank's last words. (Repetitions by other ranks
// are hidden.)
bool output_has_shown(const Output *output, int local_rank);
// Columns of the terminal that shows this rank's progress bar; 0: no bar. Only rank 0 has a bar,
// and only if its stderr has no log file.
int output_bar_columns(const Output *output, int local_rank);
// The folder of the rank's log files in this attempt, owned by the caller; NULL without log files.
char *output_folder(const Output *output, int local_rank);

// Fills two bit masks for each local rank (bit 0: stdout, bit 1: stderr): `files`, streams with a
// log file; `hidden`, streams that the console does not show. Returns 0, or -1 with err filled
// (STATUS_USAGE).
int output_routing_parse(const LaunchOptions *options, unsigned char files[LAUNCH_RANKS_MAX],
                         unsigned char hidden[LAUNCH_RANKS_MAX], Error *err);

#endif
