/* features.h: the optional features of DistributedDataParallel, for programs with a command line.
 *
 * A feature is a file, ddp/features/NAME.c, and a line of the list in features.c. The lesson and
 * the other features are independent of it: without the file, that line and its line in
 * CMakeLists.txt, the rest builds and trains (tests/deletable.sh deletes each in turn). A feature
 * acts through a CommHook, a ReadyPolicy or a DdpIteration of the wrapper's Reducer
 * (ddp/reducer.h).
 *
 * A program calls, in this order:
 *
 *     features_add_options      before parsing: the features' rows of the options table
 *     features_check            after parsing: rejects options without effect
 *     features_prepare_model    before distributed_data_parallel
 *     features_add_to           after it
 *
 * The last three return 0, or -1 with err filled.
 *
 * Other programs call a feature's own functions (ddp_set_static_graph, ddp_register_comm_hook and
 * others), each in the header of its feature. A feature without an option is not in the list
 * (join_ddp.h, post_local_sgd.h, optimizer_hook.h).
 */
#ifndef DDP_FEATURES_FEATURES_H
#define DDP_FEATURES_FEATURES_H

#include <stddef.h>

#include "common/base/options.h"
#include "ddp/distributed_data_parallel.h"

enum { FEATURES_MAX = 16, FEATURE_SETTINGS_BYTES = 64 };

// All functions are optional. One that returns an int returns 0, or -1 with err filled. A feature
// is on if its flag is given, or if it has no flag.
typedef struct DdpFeature {
    bool graph_safe;         // --cuda-graph may be combined with its options (reducer_unrecordable)
    const char *flag, *help; // of the option --flag; NULL: always on
    // If it is on: rejects options without effect and combinations that it does not support.
    int (*check)(const Options *options, Error *err);
    // If it is on: changes the model before it is wrapped.
    int (*prepare_model)(Module *model, ProcessGroup *group, Error *err);
    // If it is on: adds itself to a new wrapper.
    void (*add_to)(Module *wrapper);

    // Options of other types. settings: the feature's own struct of their values, zero before
    // add_options, which sets the defaults.
    size_t settings_bytes; // of that struct, at most FEATURE_SETTINGS_BYTES
    void (*add_options)(Options *options, void *settings);
    // Hooks for --comm-hook: their names, "a|b", and the function that creates one for a run of
    // `steps` steps. The hook's name is NULL after an error, with err filled. Both or none.
    const char *hook_names;
    CommHook (*make_hook)(const char *name, const void *settings, Module *wrapper, size_t steps,
                          Error *err);
} DdpFeature;

// The values of the features' options; the program's.
typedef struct FeatureSettings {
    union { // of any feature's struct, aligned for every type
        char bytes[FEATURE_SETTINGS_BYTES];
        max_align_t aligned;
    } each[FEATURES_MAX];
    bool on[FEATURES_MAX];
    size_t options[FEATURES_MAX + 1]; // feature i's rows of the options table: [i] to [i + 1] - 1
    char hook_names[128];             // "none|..."
    const char *comm_hook;            // one of hook_names
} FeatureSettings;

void features_add_options(Options *options, FeatureSettings *settings);
int features_check(const Options *options, const FeatureSettings *settings, Error *err);
int features_prepare_model(const FeatureSettings *settings, Module *model, ProcessGroup *group,
                           Error *err);
// Adds every feature that is on, and registers the hook of --comm-hook. steps: of the run.
int features_add_to(const FeatureSettings *settings, Module *wrapper, size_t steps, Error *err);

#endif
