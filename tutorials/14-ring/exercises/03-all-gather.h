/* 03-all-gather.h: the second half of a ring.
 *
 * Rank r holds the complete chunk r + 1 (modulo W), the result of the reduce-scatter. In each of
 * W - 1 rounds every rank sends a complete chunk to its right and receives one from its left, which
 * overwrites its own. In round k, from 0, rank r sends chunk r + 1 - k and receives chunk r - k.
 * Afterwards all ranks have all chunks, with the same bits: they are copies.
 *
 * As in 02-reduce-scatter.h: pg_send and pg_recv only, and not all ranks may send first.
 */
#ifndef TUTORIALS_ALL_GATHER_H
#define TUTORIALS_ALL_GATHER_H

#include "ddp/group/process_group.h"

// data [world * length] floats. Returns 0, or -1 with err filled by pg_run.
int ring_all_gather(ProcessGroup *group, float *data, size_t length, Error *err);

#endif
