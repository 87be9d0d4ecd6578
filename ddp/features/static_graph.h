/* static_graph.h: static_graph=True: the graph of the first backward is the graph of all. */
#ifndef DDP_FEATURES_STATIC_GRAPH_H
#define DDP_FEATURES_STATIC_GRAPH_H

#include "common/nn/module.h"

// Requires the graph of the first backward in all later ones. Call it before the first forward.
// ddp_find_unused_parameters has no effect afterwards: the unused parameters are known.
void ddp_set_static_graph(Module *wrapper);

#endif
