/* output_routing.h: parses --redirects, --tee and --local-ranks-filter: which stream of which rank
 * is written to a log file, to the console or to both.
 */
#ifndef DDP_LAUNCH_OUTPUT_ROUTING_H
#define DDP_LAUNCH_OUTPUT_ROUTING_H

#include "common/base/error.h"

// The options' texts; NULL: not given.
//
//   log_dir    folder of the log files; alone, all output is teed
//   redirects  streams written to the log file only
//   tee        streams written to the log file and the console
//   shown      local ranks whose output the console shows, "0,2"; NULL: all
//
// redirects and tee are in torchrun's notation: "0" none, "1" stdout, "2" stderr, "3" both, for all
// local ranks; or by local rank, "0:3,1:2".
typedef struct OutputOptions {
    int ranks, first_rank; // this node's local ranks 0..ranks-1 are ranks first_rank + ...
    const char *log_dir, *redirects, *tee, *shown;
} OutputOptions;

// Fills two bit masks for each local rank (bit 0: stdout, bit 1: stderr), both [options->ranks] and
// 0 before: `files`, streams with a log file; `hidden`, streams that the console does not show.
// Returns 0, or -1 with err filled (STATUS_USAGE).
int output_routing_parse(const OutputOptions *options, unsigned char *files, unsigned char *hidden,
                         Error *err);

#endif
