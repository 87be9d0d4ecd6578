/* static_graph.h: static_graph=True: the graph of the first backward is the graph of all.
 *
 * The first reduced backward only counts how often each parameter's gradient is completed (more
 * than once, if an iteration has several backwards), reduces everything at its end, and learns with
 * a used map (used_map.h) which parameters nobody uses. From then on a gradient is ready when it
 * has been completed so many times again, the unused ones are known beforehand, no map travels, and
 * buckets are rebuilt as usual. A graph that differs later is an error that names the parameters.
 */
#ifndef DDP_STATIC_GRAPH_H
#define DDP_STATIC_GRAPH_H

#include "ddp/reducer.h"

// For reducer_set_policy.
ReadyPolicy static_graph(Reducer *reducer);

#endif
