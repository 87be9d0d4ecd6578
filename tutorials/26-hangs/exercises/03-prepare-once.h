/* 03-prepare-once.h: one rank's work that can fail, with the result on all ranks.
 *
 * Rank 0 downloads the data; the others wait. If it succeeds, all ranks continue. If it fails, all
 * must stop: a rank that ends alone leaves the others in a collective, where they wait for it until
 * their deadline, and then report a misleading error.
 *
 * Call prepare(context) on rank 0 only. It returns whether it succeeded. On return, *prepared is
 * its result, on every rank, and no rank returns before prepare has.
 */
#ifndef TUTORIALS_PREPARE_ONCE_H
#define TUTORIALS_PREPARE_ONCE_H

#include "ddp/group/process_group.h"

typedef bool Prepare(void *context);

// Called by all ranks. Returns 0, also if prepare failed; -1 with err filled if a collective did.
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err);

#endif
