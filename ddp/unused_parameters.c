/* unused_parameters.c: marking what this backward will not reach. */
#include "ddp/unused_parameters.h"

#include "common/base/memory.h"
#include "ddp/used_map.h"

typedef struct Unused {
    Reducer *reducer;
    UsedMap *map;
    bool marked;     // the unused parameters of this backward
    bool found_some; // in this backward
    bool told;       // whether the first backward found any
} Unused;

// A count that an abandoned backward left over would make a parameter look used.
static void prepare(void *state) {
    Unused *unused = state;
    const NamedTensors *parameters = reducer_parameters(unused->reducer);
    for (size_t i = 0; i < parameters->count; i++) parameters->items[i].tensor->pending_uses = 0;
    unused->marked = unused->found_some = false;
}

// A parameter counts as unused if no backward since the last reduction had a gradient for it
// (no_sync: an earlier one may have), and this one will have none.
static void mark_unused(Unused *unused, const Tensor *ready) {
    const NamedTensors *parameters = reducer_parameters(unused->reducer);
    unused->marked = true;
    for (size_t i = 0; i < parameters->count; i++) {
        const Tensor *tensor = parameters->items[i].tensor;
        if (tensor == ready || tensor->pending_uses > 0) continue;
        unused->found_some = true;
        used_map_contribute(unused->map, i);
    }
}

static bool gradient(void *state, size_t parameter) {
    Unused *unused = state;
    used_map_mark(unused->map, parameter);
    if (reducer_expecting(unused->reducer) && !unused->marked)
        mark_unused(unused, reducer_parameters(unused->reducer)->items[parameter].tensor);
    return true;
}

// If nothing at all was used, or there is no backward, no gradient came first.
static void complete(void *state) {
    Unused *unused = state;
    if (!unused->marked) mark_unused(unused, NULL);
}

static void exchange(void *state, Error *err) {
    used_map_exchange(((Unused *)state)->map, err);
}

static void settle(void *state, Error *err) {
    Unused *unused = state;
    used_map_settle(unused->map, err);
    if (!unused->told && !unused->found_some && pg_rank(reducer_group(unused->reducer)) == 0)
        fprintf(stderr,
                "find_unused_parameters=True was specified, but did not find any unused "
                "parameters in the first backward. This costs an all-reduce in every "
                "backward and the rebuilding of buckets: if all parameters are always used, "
                "turn it off\n");
    unused->told = true;
}

static void close_unused(void *state) {
    Unused *unused = state;
    used_map_close(unused->map);
    free(unused);
}

ReadyPolicy unused_parameters(Reducer *reducer) {
    Unused *unused = memory_zalloc(sizeof *unused);
    *unused = (Unused){.reducer = reducer, .map = used_map_create(reducer)};
    return (ReadyPolicy){.state = unused,
                         .prepare = prepare,
                         .gradient = gradient,
                         .shadow = complete,
                         .complete = complete,
                         .exchange = exchange,
                         .settle = settle,
                         .close = close_unused};
}
