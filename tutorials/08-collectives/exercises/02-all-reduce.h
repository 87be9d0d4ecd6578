/* 02-all-reduce.h: the sum of all ranks' numbers, on every rank, with the same bits.
 *
 * The simple algorithm: every rank sends its numbers to rank 0; rank 0 adds them up in the order of
 * the ranks, ((r0 + r1) + r2) + ..., and sends the sum to all: 2 (W - 1) messages.
 *
 * It is tempting to let every rank send to every other one and add for itself. But a rank that
 * begins with its own numbers adds in another order than its neighbour, and gets other last bits.
 * In training, the replicas' weights would then diverge.
 *
 * Use pg_send and pg_recv only (see 01-broadcast.h).
 */
#ifndef TUTORIALS_ALL_REDUCE_H
#define TUTORIALS_ALL_REDUCE_H

#include "ddp/group/process_group.h"

// data [count] floats, on every rank; scratch [count] is memory for received numbers. Returns 0, or
// -1 with err filled by pg_run.
int all_reduce_by_hand(ProcessGroup *group, float *data, float *scratch, size_t count, Error *err);

#endif
