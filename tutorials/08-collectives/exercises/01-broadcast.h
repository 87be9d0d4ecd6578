/* 01-broadcast.h: the root's data to all ranks.
 *
 * Write the collective with point-to-point messages:
 *
 *     pg_run(group, pg_send(data, count, PG_F32, to), err)     to one rank
 *     pg_run(group, pg_recv(data, count, PG_F32, from), err)   from one rank; waits
 *
 * The root sends to every other rank, one message each, and every other rank receives from the
 * root. Any rank may be the root. A rank does not send to itself.
 */
#ifndef TUTORIALS_BROADCAST_H
#define TUTORIALS_BROADCAST_H

#include "ddp/group/process_group.h"

// data [count] floats, on every rank. Called by all ranks with the same count and root. Returns 0,
// or -1 with err filled by pg_run.
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err);

#endif
