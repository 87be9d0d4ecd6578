/* trace_merge.h: one timeline of the traces of a job's processes.
 *
 * Processes of one machine read one clock. The times of another machine's are laid on the first
 * file's clock by the marks that all processes set at the same two moments (trace_mark): shifted to
 * meet at the first and stretched to meet at the second.
 */
#ifndef COMMON_BASE_TRACE_MERGE_H
#define COMMON_BASE_TRACE_MERGE_H

#include <stddef.h>

#include "common/base/error.h"

// Writes the events of all files into one, which may be one of them. Returns 0, or -1 with err
// filled if a file cannot be read, is no trace, or is of another clock and has no marks.
int trace_merge(const char *path, const char *const *files, size_t count, Error *err);

// The path of a rank's own trace, until all are merged: PATH for rank 0, PATH.rank1 for rank 1, and
// so on. The caller frees it.
char *trace_part(const char *path, int rank);
// Merges the parts of a job's ranks into PATH and removes them. Returns how many are not on this
// machine, or -1 with err filled.
int trace_merge_ranks(const char *path, int ranks, Error *err);

#endif
