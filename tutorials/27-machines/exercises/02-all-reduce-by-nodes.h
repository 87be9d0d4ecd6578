/* 02-all-reduce-by-nodes.h: an all-reduce that sends few bytes over the slow network between nodes.
 *
 * The sum of all ranks' numbers, on all ranks, in three collectives:
 *
 * 1. on each node, a reduce to the node's first rank;
 * 2. between the first ranks of all nodes, an all-reduce: only this one leaves a machine;
 * 3. on each node, a broadcast from its first rank.
 *
 * ddp/group/collective.h has all three: pg_reduce, pg_all_reduce and pg_broadcast, for pg_run.
 *
 * `node` is the group of this rank's node, in which the first rank has the number 0. `firsts` is
 * the group of the first ranks of all nodes; it is NULL on all other ranks.
 *
 * The order of the additions differs from that of one all-reduce over all ranks, so the last bits
 * of floats may differ; all ranks still have the same bits.
 */
#ifndef TUTORIALS_ALL_REDUCE_BY_NODES_H
#define TUTORIALS_ALL_REDUCE_BY_NODES_H

#include "ddp/group/process_group.h"

// Replaces numbers [count] by the sums. Returns 0, or -1 with err filled.
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err);

#endif
