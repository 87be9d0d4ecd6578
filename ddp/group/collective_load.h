/* collective_load.h: what one rank sends and receives in a collective, by the algorithm that a
 * network would use for it, whatever the backend really does. An emulated link takes its time from
 * this (device/link.h), and so do worksheets and models of communication.
 *
 * W ranks, n bytes in the buffer that the constructor measures (collective.h):
 *
 *     all_reduce       ring: W - 1 rounds that add up, W - 1 that pass the sums on; n / W each
 *     reduce_scatter   ring: W - 1 rounds of n
 *     all_gather       ring: W - 1 rounds of n
 *     broadcast        a chain from the root on, in pieces that follow each other: n through all
 *     reduce           the same chain, towards the root
 *     gather, scatter  the root exchanges n with each of the others, all at its one link
 *     send, recv       n, once
 *     barrier          dissemination: log2 W rounds, rounded up, without bytes
 */
#ifndef DDP_GROUP_COLLECTIVE_LOAD_H
#define DDP_GROUP_COLLECTIVE_LOAD_H

#include "common/device/link.h"
#include "ddp/group/collective.h"

// The load of rank `rank` in a group of `size` ranks. All of it is zero in a group of one.
LinkLoad collective_load(const Collective *collective, int rank, int size);

#endif
