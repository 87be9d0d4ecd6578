/* nodes.h: the launchers of a job's nodes, keeping each other informed through the store.
 *
 * There is one ddprun per node; node 0's serves the store. Each counts up a key of its own once a
 * second, so that node 0 notices a launcher that is gone; the others notice when node 0's store is.
 * The first node that has to end an attempt says so under one key, and all end it. With one node
 * there is nobody to talk to: Nodes is NULL, with which nodes_look, nodes_tell, nodes_arrive and
 * nodes_leave do nothing.
 */
#ifndef DDP_LAUNCH_NODES_H
#define DDP_LAUNCH_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

typedef struct Nodes Nodes;

// Tries once to reach the store. NULL with err filled: another attempt may help if err's status is
// STATUS_FAILED.
Nodes *nodes_join(int nodes, int node, const char *host, int port, const char *token, Error *err);
void nodes_leave(Nodes *nodes);

typedef enum NodesNews {
    NODES_FINE,
    NODES_FAILED,  // another node's rank failed, or another launcher is gone: why is in text
    NODES_STOPPED, // another launcher was told to end the job: no restart
} NodesNews;

// Does this node's part and looks at the others, at most once a second.
NodesNews nodes_look(Nodes *nodes, int attempt, char *text, size_t capacity);
// Tells the others that this attempt is over, and why; `stop`: without a restart.
void nodes_tell(Nodes *nodes, int attempt, bool stop, const char *why);

// Says that this node has come to a meeting point.
void nodes_arrive(Nodes *nodes, const char *point, int attempt);
// How many nodes have come there; -1 if the store does not answer.
int nodes_arrived(Nodes *nodes, const char *point, int attempt);
// Writes which nodes have not joined: "node 1, 3".
void nodes_list_missing(Nodes *nodes, char *text, size_t capacity);

#endif
