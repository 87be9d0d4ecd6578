/* nodes.h: how the launchers of a job's nodes coordinate, through the store.
 *
 * Each node has one ddprun; node 0's serves the store. Each increments a key of its own once a
 * second: by these node 0 detects a launcher that died, and the others detect node 0's death by the
 * store. The first node that ends an attempt publishes the reason under one key, and all end it.
 * With one node Nodes is NULL: nodes_poll, nodes_publish_end, nodes_arrive and nodes_leave do
 * nothing then. Calls block for at most a second each. One thread uses it.
 */
#ifndef DDP_LAUNCH_NODES_H
#define DDP_LAUNCH_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

typedef struct Nodes Nodes;

// Connects to the store, one attempt. NULL with err filled: STATUS_FAILED may be retried.
Nodes *nodes_join(int nodes, int node, const char *host, int port, const char *token, Error *err);
void nodes_leave(Nodes *nodes);
// Compares --nnodes, --nproc-per-node and --node-rank with those of the nodes that called before.
// Returns 0, or -1 with err filled, which names both nodes' values.
int nodes_compare(Nodes *nodes, int local_ranks, Error *err);

typedef enum NodesVerdict {
    NODES_RUNNING,
    NODES_FAILED,  // another node's rank failed, or its launcher died: text says why
    NODES_STOPPED, // another launcher received a signal: no restart
} NodesVerdict;

// Increments this node's key and checks the others, at most once a second.
NodesVerdict nodes_poll(Nodes *nodes, int attempt, char *text, size_t capacity);
// Publishes the end of this attempt and its reason, unless a node has done so; stop: no restart.
void nodes_publish_end(Nodes *nodes, int attempt, bool stop, const char *why);

// Increments the counter of a barrier.
void nodes_arrive(Nodes *nodes, const char *point, int attempt);
// The value of that counter; -1 if the store does not answer.
int nodes_arrived(Nodes *nodes, const char *point, int attempt);
// Writes the nodes that have not joined: "node 1, 3".
void nodes_list_missing(Nodes *nodes, char *text, size_t capacity);

#endif
