/* unused_parameters.c: see unused_parameters.h.
 *
 * PyTorch walks the graph from the outputs at the end of forward. Here the tape computes at the
 * begin of backward, from the loss, the number of contributions to each parameter; those with 0 are
 * unused. So an output that the loss does not depend on is no error. As in PyTorch they are marked
 * ready with the first gradient of the backward; used_map.h defines their gradients. Cost: one
 * small all-reduce per backward, and buckets are never rebuilt.
 */
#include "ddp/features/unused_parameters.h"

#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/features/used_map.h"

typedef struct Unused {
    Reducer *reducer;
    UsedMap *map;
    bool marked;     // the unused parameters of this backward
    bool found_some; // in this backward
    bool told;       // whether the first backward found any
} Unused;

// Counts of an abandoned backward would mark a parameter as used.
static void forward_begins(void *state) {
    Unused *unused = state;
    const NamedTensors *parameters = &unused->reducer->slab.parameters;
    for (size_t i = 0; i < parameters->count; i++) parameters->items[i].tensor->pending_uses = 0;
    unused->marked = unused->found_some = false;
}

// Whether a parameter has no gradient of any backward since the last reduction (with no_sync there
// may be several) and gets none in this one.
static void mark_unused(Unused *unused, const Tensor *ready) {
    const NamedTensors *parameters = &unused->reducer->slab.parameters;
    unused->marked = true;
    for (size_t i = 0; i < parameters->count; i++) {
        const Tensor *tensor = parameters->items[i].tensor;
        if (tensor == ready || tensor->pending_uses > 0) continue;
        unused->found_some = true;
        used_map_contribute(unused->map, i);
    }
}

static void fail_used_after_all(Unused *unused, size_t parameter) {
    error_set(
        &unused->reducer->error, STATUS_FAILED,
        "Expected to mark a variable ready only once. Parameter at index %zu with name %s was "
        "marked ready as unused, because the first backward since the gradients were last "
        "reduced did not reach it, but now another backward has. With "
        "find_unused_parameters there can be only one: add the losses up",
        parameter, unused->reducer->slab.parameters.items[parameter].name);
}

static bool gradient_completed(void *state, size_t parameter) {
    Unused *unused = state;
    unused->map->used[parameter] = 1;
    if (!unused->reducer->expecting) return true;
    if (!unused->marked)
        mark_unused(unused, unused->reducer->slab.parameters.items[parameter].tensor);
    else if (unused->map->lent[parameter]) {
        fail_used_after_all(unused, parameter);
        return false;
    }
    return true;
}

// Marks the unused parameters of a backward without any gradient, or without a backward.
static void mark_rest(void *state) {
    Unused *unused = state;
    if (!unused->marked) mark_unused(unused, NULL);
}

static int buckets_started(void *state, Error *err) {
    return used_map_start(((Unused *)state)->map, err);
}

static int buckets_reduced(void *state, Error *err) {
    Unused *unused = state;
    int status = used_map_wait(unused->map, err);
    used_map_return_gradients(unused->map);
    if (!unused->told && !unused->found_some && pg_rank(unused->reducer->group) == 0)
        fprintf(stderr,
                "find_unused_parameters=True was specified, but did not find any unused "
                "parameters in the first backward. This costs an all-reduce in every "
                "backward and the rebuilding of buckets: if all parameters are always used, "
                "turn it off\n");
    unused->told = true;
    return status;
}

static void close_unused(void *state) {
    Unused *unused = state;
    used_map_close(unused->map);
    free(unused);
}

void ddp_find_unused_parameters(Module *wrapper) {
    Reducer *reducer = ddp_reducer(wrapper);
    if (reducer->policy.name) return;
    Unused *unused = memory_zalloc(sizeof *unused);
    *unused = (Unused){.reducer = reducer, .map = used_map_create(reducer)};
    reducer_set_policy(reducer, (ReadyPolicy){.name = "find_unused_parameters",
                                              .state = unused,
                                              .permanent_buckets = true,
                                              .forward_begins = forward_begins,
                                              .gradient_completed = gradient_completed,
                                              .backward_left_out = mark_rest,
                                              .backward_done = mark_rest,
                                              .buckets_started = buckets_started,
                                              .buckets_reduced = buckets_reduced,
                                              .close = close_unused});
}

// ---- the command line -----------------------------------------------------------------------

static int check(const Options *options, Error *err) {
    const OptionUse use = {"find-unused-parameters", !options_given(options, "static-graph"),
                           "--static-graph finds them by itself"};
    return options_check_used(options, &use, 1, err);
}

const DdpFeature unused_parameters_feature = {
    .flag = "find-unused-parameters",
    .help = "expect no gradient of parameters that the loss does not depend on",
    .check = check,
    .add_to = ddp_find_unused_parameters};
