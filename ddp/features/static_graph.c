/* static_graph.c: see static_graph.h.
 *
 * The first reduced backward counts how often each parameter's gradient is completed (more than
 * once if an iteration has several backwards), reduces everything at its end, and determines by a
 * used map (used_map.h) the parameters that no rank uses. In later backwards a gradient is ready
 * when it is completed the same number of times; the unused parameters are known, so no map is
 * exchanged, and buckets are rebuilt as usual. A backward with another graph is an error that names
 * the parameters.
 */
#include "ddp/features/static_graph.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/features/used_map.h"

typedef struct StaticGraph {
    Reducer *reducer;
    UsedMap *map;
    size_t count;   // parameters
    bool recorded;  // the first backward is over
    int *completed; // [count] times in the first backward
    int *remaining; // [count] completions left in this backward
    size_t *order;  // [ordered] parameters by their last completion in the first backward
    size_t ordered;
    bool marked; // the unused parameters of this backward
} StaticGraph;

// An abandoned first backward has counted only a part of the graph.
static void forward_begins(void *state) {
    StaticGraph *graph = state;
    if (!graph->recorded && graph->ordered > 0)
        error_set(&graph->reducer->error, STATUS_FAILED,
                  "Expected to have finished reduction in the prior iteration before starting a "
                  "new one: the first backward, from which static_graph learns the graph, did not "
                  "reach its end");
    memcpy(graph->remaining, graph->completed, graph->count * sizeof *graph->remaining);
    graph->marked = false;
}

static void move_to_end(StaticGraph *graph, size_t parameter) {
    size_t kept = 0;
    for (size_t i = 0; i < graph->ordered; i++)
        if (graph->order[i] != parameter) graph->order[kept++] = graph->order[i];
    graph->order[kept++] = parameter;
    graph->ordered = kept;
}

static void fail_changed(StaticGraph *graph, size_t parameter, const char *how) {
    error_set(&graph->reducer->error, STATUS_FAILED,
              "Your training graph has changed in this iteration, e.g., one parameter is unused in "
              "first iteration, but then got used in the second iteration. this is not compatible "
              "with static_graph set to True. Rank %d: %s %s in the first iteration than in this "
              "one",
              pg_rank(graph->reducer->group), graph->reducer->slab.parameters.items[parameter].name,
              how);
}

static void mark_unused(StaticGraph *graph) {
    graph->marked = true;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->completed[i] == 0) used_map_contribute(graph->map, i);
}

static bool gradient_completed(void *state, size_t parameter) {
    StaticGraph *graph = state;
    if (!graph->reducer->expecting) return false;
    if (!graph->recorded) {
        graph->completed[parameter]++;
        move_to_end(graph, parameter);
        graph->map->used[parameter] = 1;
        return false;
    }
    if (graph->remaining[parameter] == 0) {
        fail_changed(graph, parameter, "was used less often");
        return false;
    }
    if (!graph->marked) mark_unused(graph);
    return --graph->remaining[parameter] == 0;
}

static void backward_done(void *state) {
    StaticGraph *graph = state;
    for (size_t i = 0; !graph->recorded && i < graph->ordered; i++)
        reducer_mark_ready(graph->reducer, graph->order[i]);
    if (!graph->marked) mark_unused(graph);
    for (size_t i = 0; graph->recorded && i < graph->count; i++)
        if (graph->remaining[i] > 0) fail_changed(graph, i, "was used more often");
}

static void backward_left_out(void *state) {
    StaticGraph *graph = state;
    graph->marked = true;
    memset(graph->remaining, 0, graph->count * sizeof *graph->remaining);
    for (size_t i = 0; i < graph->count; i++) used_map_contribute(graph->map, i);
}

static int buckets_started(void *state, Error *err) {
    StaticGraph *graph = state;
    return graph->recorded ? 0 : used_map_start(graph->map, err);
}

static int buckets_reduced(void *state, Error *err) {
    StaticGraph *graph = state;
    int status = graph->recorded ? 0 : used_map_wait(graph->map, err);
    used_map_return_gradients(graph->map);
    graph->recorded = true;
    return status;
}

static void close_graph(void *state) {
    StaticGraph *graph = state;
    used_map_close(graph->map);
    free(graph->completed);
    free(graph->remaining);
    free(graph->order);
    free(graph);
}

void ddp_set_static_graph(Module *wrapper) {
    Reducer *reducer = ddp_reducer(wrapper);
    StaticGraph *graph = memory_zalloc(sizeof *graph);
    size_t count = reducer->slab.parameters.count;
    *graph = (StaticGraph){.reducer = reducer,
                           .map = used_map_create(reducer),
                           .count = count,
                           .completed = memory_zalloc(count * sizeof *graph->completed),
                           .remaining = memory_zalloc(count * sizeof *graph->remaining),
                           .order = memory_zalloc(count * sizeof *graph->order)};
    reducer_set_policy(reducer, (ReadyPolicy){.name = "static_graph",
                                              .state = graph,
                                              .forward_begins = forward_begins,
                                              .gradient_completed = gradient_completed,
                                              .backward_left_out = backward_left_out,
                                              .backward_done = backward_done,
                                              .buckets_started = buckets_started,
                                              .buckets_reduced = buckets_reduced,
                                              .close = close_graph,
                                              .graph_safe = true}); // the graph never changes
}

// ---- the command line -----------------------------------------------------------------------

const DdpFeature static_graph_feature = {.graph_safe = true,
                                         .flag = "static-graph",
                                         .help = "expect the graph of the first step in all others",
                                         .add_to = ddp_set_static_graph};
