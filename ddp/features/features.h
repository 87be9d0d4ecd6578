/* features.h: what DistributedDataParallel can do besides the plain case.
 *
 * A feature is one file, ddp/features/NAME.c, and one line of the list in features.c. The core does
 * not know it, nor does any other feature: delete the file, that line and its line in
 * CMakeLists.txt, and everything else builds and trains (tests/deletable.sh does that with each). A
 * feature hangs itself on a wrapper by CommHook, ReadyPolicy and DdpIteration (ddp/reducer.h).
 *
 * The list is for programs with a command line, in this order:
 *
 *     features_add_options      the options of every feature, in the program's table
 *     features_check            after parsing: an option that would have no effect is refused
 *     features_prepare_model    before distributed_data_parallel
 *     features_add_to           after it
 *     features_check_run        when the number of steps is known
 *
 * Other programs call the features they want: ddp_find_unused_parameters, ddp_set_static_graph,
 * ddp_register_comm_hook and so on, each in the header of its feature. What only they can turn on
 * needs no line in the list (join_ddp.h, post_local_sgd.h, optimizer_hook.h).
 */
#ifndef DDP_FEATURES_FEATURES_H
#define DDP_FEATURES_FEATURES_H

#include <stddef.h>

#include "common/base/options.h"
#include "ddp/distributed_data_parallel.h"

enum { FEATURES_MAX = 16, FEATURE_SETTINGS_BYTES = 64 };

// All functions are optional: NULL means that there is nothing to do.
// graph_safe: a step may be recorded and replayed (--cuda-graph) with this feature's options, by
// the rule of reducer_unrecordable. A communication hook says so itself.
typedef struct DdpFeature {
    bool graph_safe;
    // The option --flag turns the feature on, and help is what --help says of it. NULL: it is
    // always on.
    const char *flag, *help;
    // If it is on. Refuses options that were given and would have no effect, or cannot be combined.
    // -1 with err filled.
    int (*check)(const Options *options, Error *err);
    // If it is on. Changes the model before it is wrapped. -1 with err filled.
    int (*prepare_model)(Module *model, ProcessGroup *group, Error *err);
    // If it is on. Hangs itself on a new wrapper.
    void (*add_to)(Module *wrapper);

    // Options of other kinds. settings is the feature's own struct, which holds their values; it is
    // zero before add_options binds them, with their defaults.
    size_t settings_bytes; // of that struct, at most FEATURE_SETTINGS_BYTES
    void (*add_options)(Options *options, void *settings);
    // Refuses what would have no effect in a run of so many steps. comm_hook: the hook that was
    // chosen. -1 with err filled.
    int (*check_run)(const void *settings, const char *comm_hook, size_t steps, Error *err);
    // Communication hooks for --comm-hook: their names, "a|b", and how to make one. The hook has no
    // name if that failed, with err filled. Both NULL: the feature has none.
    const char *hook_names;
    CommHook (*make_hook)(const char *name, const void *settings, Module *wrapper, Error *err);
} DdpFeature;

// The command line's answers, kept by the program.
typedef struct FeatureSettings {
    union { // with room for any struct, and aligned as any may have to be
        char bytes[FEATURE_SETTINGS_BYTES];
        max_align_t aligned;
    } each[FEATURES_MAX];
    bool on[FEATURES_MAX];            // what has no flag always is
    size_t options[FEATURES_MAX + 1]; // feature i's are [i] to [i + 1] - 1 of the table
    char hook_names[128];             // "none|..."
    const char *comm_hook;            // one of them
} FeatureSettings;

void features_add_options(Options *options, FeatureSettings *settings);
int features_check(const Options *options, const FeatureSettings *settings, Error *err);
int features_check_run(const FeatureSettings *settings, size_t steps, Error *err);
int features_prepare_model(const FeatureSettings *settings, Module *model, ProcessGroup *group,
                           Error *err);
// Adds every feature that was asked for, and registers the communication hook that was chosen.
int features_add_to(const FeatureSettings *settings, Module *wrapper, Error *err);

#endif
