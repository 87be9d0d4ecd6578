/* 01-ring-or-tree.h: what an all-reduce takes, in two ways of doing it.
 *
 * A message of n bytes takes latency + n / bytes_per_s seconds. All devices may send and receive at
 * the same time, each over its own link.
 *
 * - Ring: 2 (W - 1) rounds, one after the other. In each of them every device sends bytes / W to
 *   its neighbour.
 * - Tree: all bytes go up a binary tree to the root, being added on the way, and come down again:
 *   2 ceil(log2 W) rounds with all bytes in each.
 *
 * The ring sends less, the tree has fewer rounds. One device needs neither, and 0 seconds.
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
