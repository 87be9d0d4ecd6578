/* features.h: what DistributedDataParallel can do besides the plain case.
 *
 * A feature is one file, ddp/NAME.c, and one line of the list in features.c. The core does not know
 * it, nor does any other feature: delete the file, that line and its line in CMakeLists.txt, and
 * everything else builds and trains (tests/deletable.sh does that with each). A feature hangs
 * itself on what the core offers: CommHook, ReadyPolicy and BucketWatch (reducer.h), what runs
 * before a forward and after an iteration (distributed_data_parallel.h).
 *
 * What neither the command line nor DdpConfig turns on needs no line in the list: it is called by
 * whoever wants it (join_ddp.h, post_local_sgd.h, optimizer_hook.h).
 */
#ifndef DDP_FEATURES_FEATURES_H
#define DDP_FEATURES_FEATURES_H

#include "common/base/options.h"
#include "ddp/distributed_data_parallel.h"

enum { FEATURES_MAX = 16 };

typedef struct FeatureOptions { // what the command line says to one feature
    bool on;
    size_t numbers[2];
} FeatureOptions;

// All may be NULL.
typedef struct DdpFeature {
    // Adds the feature's options to a table, bound to the config or to its own, with defaults.
    void (*options)(Options *options, DdpConfig *config, FeatureOptions *own);
    // Refuses those that were given and would have no effect. -1 with err filled.
    int (*check)(const Options *options, const DdpConfig *config, const char *comm_hook,
                 Error *err);
    // Before the model is wrapped by a program that has read its options. -1 with err filled.
    int (*prepare)(const FeatureOptions *own, DdpConfig *config, Module *model, ProcessGroup *group,
                   Error *err);
    // The last step of distributed_data_parallel. ddp_config(wrapper) says whether it is wanted.
    void (*attach)(Module *wrapper);
    // Communication hooks for --comm-hook: their names, "a|b", and how to make one. It has no name
    // if that failed, with err filled.
    const char *hook_names;
    CommHook (*make_hook)(const char *name, const FeatureOptions *own, Module *wrapper, Error *err);
} DdpFeature;

// The command line's answers, kept by the program.
typedef struct FeatureSettings {
    FeatureOptions each[FEATURES_MAX];
    char hook_names[128];  // "none|..."
    const char *comm_hook; // one of them
} FeatureSettings;

void features_add_options(Options *options, DdpConfig *config, FeatureSettings *settings);
int features_check(const Options *options, const DdpConfig *config, const FeatureSettings *settings,
                   Error *err);
int features_prepare(const FeatureSettings *settings, DdpConfig *config, Module *model,
                     ProcessGroup *group, Error *err);
void features_attach(Module *wrapper);
// Registers the hook that was chosen, if any.
int features_register_hook(const FeatureSettings *settings, Module *wrapper, Error *err);

#endif
