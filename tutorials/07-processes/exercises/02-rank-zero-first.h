/* 02-rank-zero-first.h: one rank prepares, then all use.
 *
 * Some work must be done once, and not once per rank: unpacking a data set, making a folder,
 * writing a checkpoint. No rank may use the result before it exists. So rank 0 prepares while the
 * others wait, and then all use it. They wait in a barrier:
 *
 *     pg_run(group, pg_barrier(), err)      returns 0 when all ranks have called it, or -1
 *
 * A barrier waits until *every* rank has called it. If one rank does not call it, the others wait
 * until their deadline, and get an error.
 */
#ifndef TUTORIALS_RANK_ZERO_FIRST_H
#define TUTORIALS_RANK_ZERO_FIRST_H

#include "ddp/group/process_group.h"

typedef void Job(void *context);

// Calls prepare(context) on rank 0 only, and then use(context) on every rank, once, but on no rank
// before prepare has ended. Returns 0, or -1 with err filled by pg_run.
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err);

#endif
