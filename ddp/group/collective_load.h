/* collective_load.h: the bytes that one rank sends and receives in a collective, by the algorithm
 * that is usual on a network, independent of the backend. Used by the emulated link
 * (device/link.h), worksheets and models of communication.
 *
 * W ranks, n bytes in the buffer that the constructor measures (collective.h):
 *
 *     all_reduce       ring: W - 1 rounds that add up, W - 1 that pass the sums on; n / W each
 *     reduce_scatter   ring: W - 1 rounds of n
 *     all_gather       ring: W - 1 rounds of n
 *     broadcast        a pipelined chain that begins at the root: n through each rank
 *     reduce           the same chain, in the direction of the root
 *     gather, scatter  the root exchanges n with each other rank, over its one link
 *     send, recv       n, once
 *     barrier          dissemination: log2 W rounds, rounded up, without bytes
 */
#ifndef DDP_GROUP_COLLECTIVE_LOAD_H
#define DDP_GROUP_COLLECTIVE_LOAD_H

#include "common/device/link.h"
#include "ddp/group/collective.h"

// The load of rank `rank` in a group of `size` ranks; all zero for size 1.
LinkLoad collective_load(const Collective *collective, int rank, int size);

#endif
