/* 01-place.h: a rank's node, and its number there.
 *
 * The ranks of a job are numbered node by node: first those of node 0, then those of node 1, and so
 * on. Nodes may have different numbers of ranks: one may have 8 GPUs and another 4.
 *
 * From the number of ranks of each node and a rank's number in the job, find its node and its
 * number on that node (LOCAL_RANK, which is also the number of its device). For a number that no
 * rank has, node and local rank are -1.
 */
#ifndef TUTORIALS_PLACE_H
#define TUTORIALS_PLACE_H

typedef struct Place {
    int node, local_rank;
} Place;

// ranks_of_node [nodes], each 1 or more.
Place place_of_rank(const int *ranks_of_node, int nodes, int rank);

#endif
