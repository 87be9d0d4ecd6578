/* 03-prepare-once.h: one rank does something that can fail, and all have to know.
 *
 * Rank 0 downloads the data; the others wait. If it succeeds, all go on. If it fails, all have to
 * stop: a rank that ends by itself leaves the others in a collective, where they wait for it until
 * their deadline, and then complain about the wrong thing.
 *
 * Call prepare(context) on rank 0, and nowhere else. It returns whether it succeeded. After the
 * call, *prepared is what it returned, on every rank; and no rank has gone on before prepare was
 * over.
 */
#ifndef TUTORIALS_PREPARE_ONCE_H
#define TUTORIALS_PREPARE_ONCE_H

#include "ddp/group/process_group.h"

typedef bool Prepare(void *context);

// Called by all ranks. Returns 0, also if prepare failed; -1 with err filled if a collective did.
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err);

#endif
