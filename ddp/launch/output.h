/* output.h: what the ranks write, brought to the console and to log files.
 *
 * Each rank's stdout and stderr are pipes that the launcher reads. Lines reach the console whole,
 * never interleaved, and say whose they are: "[3]: ". Only rank 0's stdout has no prefix, because
 * it is the job's data. A line longer than 1 MiB comes in pieces. On a terminal the progress bar of
 * rank 0 stays below the lines.
 *
 * Nothing here waits: a console that does not take its bytes makes them queue here, then the ranks'
 * pipes fill up, and the supervision goes on all the same.
 */
#ifndef DDP_LAUNCH_OUTPUT_H
#define DDP_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

// torchrun's notation for redirects and tee: "0" none, "1" stdout, "2" stderr, "3" both, for all
// local ranks, or per local rank "0:3,1:2". redirects: to the log file only; tee: to file and
// console. With a log folder and neither of them, everything is teed. shown: local ranks whose
// output is seen on the console, "0,2"; NULL: all.
typedef struct OutputOptions {
    int ranks, first_rank; // this node's local ranks 0..ranks-1 are ranks first_rank + ...
    const char *log_dir, *redirects, *tee, *shown;
} OutputOptions;

typedef struct Output Output;

Output *output_open(const OutputOptions *options, Error *err);
void output_close(Output *output);

// Makes log_dir/attempt_K/RANK/{stdout,stderr}.log for this attempt.
int output_begin(Output *output, int attempt, Error *err);
// From now on, what comes through these read ends of the rank's two pipes is passed on.
void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd);
// Passes on what is left in the pipes, then closes pipes and files. Whoever still holds a write end
// (a stray grandchild) is not waited for.
void output_end(Output *output);

// For poll: the descriptors worth waking up for. entries has room for output_poll_max.
size_t output_poll_max(const Output *output);
size_t output_poll(const Output *output, struct pollfd *entries);
// Moves what can be moved without waiting.
void output_pump(Output *output);
// Passes on all that this rank has written until now, so that its last words are known.
void output_drain(Output *output, int local_rank);
// Waits until the console has taken everything, at most this long.
void output_flush(Output *output, double seconds);
// errno of a write to standard output that failed, so that lines are lost; 0: none did.
int output_lost(const Output *output);

// A line of the launcher's own, on stderr: "ddprun: ...".
void output_say(Output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The last line with something in it that the rank wrote to stderr ("" if none), printable.
const char *output_last_words(const Output *output, int local_rank);
// Whether these are the words of an error line that the console shows. (The same line of another
// rank is not shown again.)
bool output_has_shown(const Output *output, const char *words);
// How wide the terminal is on which this rank's progress bar is shown: rank 0's, if it has no log
// file of stderr. 0: no bar is shown.
size_t output_bar_columns(const Output *output, int local_rank);
// The folder of the rank's log files in this attempt, NULL without.
const char *output_folder(const Output *output, int local_rank);

#endif
