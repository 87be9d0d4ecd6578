/* 01-ring-or-tree.h: the time of an all-reduce by two algorithms.
 *
 * A message of n bytes takes latency + n / bytes_per_s seconds. All devices may send and receive at
 * the same time, each over its own link.
 *
 * - Ring: 2 (W - 1) rounds, one after the other. In each of them every device sends bytes / W to
 *   its neighbour.
 * - Tree: all bytes are sent up a binary tree to the root, which adds them at each level, and down
 *   again: 2 ceil(log2 W) rounds with all bytes in each.
 *
 * The ring sends fewer bytes, the tree has fewer rounds. With one device both take 0 seconds.
 */
#ifndef TUTORIALS_RING_OR_TREE_H
#define TUTORIALS_RING_OR_TREE_H

#include <stdbool.h>

typedef struct LinkCosts {
    double latency_s, bytes_per_s;
} LinkCosts;

double ring_s(LinkCosts link, int devices, double bytes);
double tree_s(LinkCosts link, int devices, double bytes);
// Is the tree faster than the ring?
bool tree_is_faster(LinkCosts link, int devices, double bytes);

#endif
