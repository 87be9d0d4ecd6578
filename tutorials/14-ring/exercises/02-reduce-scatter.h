/* 02-reduce-scatter.h: the first half of a ring.
 *
 * Chunk c of data [world * length] are the `length` numbers from c * length on. In each of W - 1
 * rounds every rank sends one chunk to the rank on its right (rank + 1, and after the last one rank
 * 0), receives one from its left, and adds it to its own. In round k, from 0, rank r sends chunk
 * r - k and receives chunk r - k - 1 (modulo W: chunk -1 is chunk W - 1). In the end rank r holds
 * the complete sum of chunk r + 1. The other chunks may hold anything then.
 *
 *     pg_run(group, pg_send(numbers, count, PG_F32, to), err)
 *     pg_run(group, pg_recv(numbers, count, PG_F32, from), err)
 *
 * A send returns when its numbers have been received, or fit into the buffer between the two ranks,
 * which has 128 KiB. If all ranks sent first, all might wait for a receiver. So some ranks must
 * receive first. (pg_start does not help: a rank runs its started collectives in the order of
 * issue, one after the other, so a receive that was started first blocks the send behind it.)
 */
#ifndef TUTORIALS_REDUCE_SCATTER_H
#define TUTORIALS_REDUCE_SCATTER_H

#include "ddp/group/process_group.h"

// data [world * length] floats, scratch [length] for received numbers. Returns 0, or -1 with err
// filled by pg_run.
int ring_reduce_scatter(ProcessGroup *group, float *data, float *scratch, size_t length,
                        Error *err);

#endif
