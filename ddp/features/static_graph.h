/* static_graph.h: static_graph=True: the graph of the first backward is the graph of all. */
#ifndef DDP_FEATURES_STATIC_GRAPH_H
#define DDP_FEATURES_STATIC_GRAPH_H

#include "common/nn/module.h"

// Expects the graph of the first backward in all others. To be called before the first forward.
// Afterwards ddp_find_unused_parameters changes nothing, because a static graph knows what is
// unused.
void ddp_set_static_graph(Module *wrapper);

#endif
