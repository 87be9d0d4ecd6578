/* trace_merge.h: merges the traces of a job's processes into one timeline.
 *
 * Processes of one machine share a clock. Times of another machine are mapped linearly to the first
 * file's clock, so that the two marks of trace_mark coincide.
 */
#ifndef COMMON_BASE_TRACE_MERGE_H
#define COMMON_BASE_TRACE_MERGE_H

#include <stddef.h>

#include "common/base/error.h"

// Writes the events of all files to path, which may be one of them. Returns 0, or -1 with err
// filled if a file cannot be read, is no trace, or has another clock and no marks.
int trace_merge(const char *path, const char *const *files, size_t count, Error *err);

// The path of a rank's own trace: PATH for rank 0, PATH.rank1 for rank 1, ... The caller frees it.
char *trace_part(const char *path, int rank);
// Merges the files of a job's ranks into PATH and removes them. Returns the number of ranks whose
// file is not on this machine, or -1 with err filled.
int trace_merge_ranks(const char *path, int ranks, Error *err);

#endif
