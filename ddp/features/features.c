/* features.c: the list of features, and the calls of each.
 *
 * No other file names them all. Features are added to a wrapper in the list's order: policies,
 * which decide when a gradient is ready, before features that depend on the policy.
 */
#include "ddp/features/features.h"

#include "common/base/format.h"
#include "ddp/reducer.h"

#define FEATURES(FEATURE)            \
    FEATURE(sync_batch_norm)         \
    FEATURE(static_graph)            \
    FEATURE(unused_parameters)       \
    FEATURE(gradient_as_bucket_view) \
    FEATURE(comm_hooks)              \
    FEATURE(powersgd_hook)           \
    FEATURE(zero_optimizer)          \
    FEATURE(fast_sums)               \
    FEATURE(logging_data)

// ddp/features/NAME.c defines NAME_feature.
#define DECLARE(name) extern const DdpFeature name##_feature;
#define ADDRESS(name) &name##_feature,
FEATURES(DECLARE)
static const DdpFeature *const features[] = {FEATURES(ADDRESS) NULL};
_Static_assert(sizeof features / sizeof features[0] <= FEATURES_MAX + 1, "raise FEATURES_MAX");

void features_add_options(Options *options, FeatureSettings *settings) {
    *settings = (FeatureSettings){.hook_names = "none", .comm_hook = "none"};
    for (int i = 0; features[i]; i++) {
        CHECK(features[i]->settings_bytes <= FEATURE_SETTINGS_BYTES,
              "raise FEATURE_SETTINGS_BYTES");
        settings->options[i] = options->count;
        settings->on[i] = !features[i]->flag;
        if (features[i]->flag)
            options_add_flag(options, features[i]->flag, &settings->on[i], features[i]->help);
        if (features[i]->add_options) features[i]->add_options(options, &settings->each[i]);
        settings->options[i + 1] = options->count;
        const char *names = features[i]->hook_names;
        bool fits = !names ||
                    format_append(settings->hook_names, sizeof settings->hook_names, "|%s", names);
        CHECK(fits, "too many communication hooks");
    }
    options_add_choice(options, "comm-hook", &settings->comm_hook, settings->hook_names,
                       "the reduction of a full bucket (noop: none, the bound for any network)");
}

// Rejects options of features that --cuda-graph cannot capture. 0, or -1 with err filled.
static int check_graph(const Options *options, const FeatureSettings *settings, Error *err) {
    for (int i = 0; features[i]; i++)
        for (size_t o = settings->options[i]; o < settings->options[i + 1]; o++)
            if (options->given[o] && !features[i]->graph_safe)
                return error_set(err, STATUS_USAGE,
                                 "--cuda-graph: a recorded step cannot have --%s, in which the "
                                 "host has a part in every step",
                                 options->table[o].name);
    return 0;
}

int features_check(const Options *options, const FeatureSettings *settings, Error *err) {
    for (int i = 0; features[i]; i++)
        if (settings->on[i] && features[i]->check && features[i]->check(options, err) != 0)
            return -1;
    return options_given(options, "cuda-graph") ? check_graph(options, settings, err) : 0;
}

int features_prepare_model(const FeatureSettings *settings, Module *model, ProcessGroup *group,
                           Error *err) {
    for (int i = 0; features[i]; i++)
        if (settings->on[i] && features[i]->prepare_model &&
            features[i]->prepare_model(model, group, err) != 0)
            return -1;
    return 0;
}

static int register_hook(const FeatureSettings *settings, Module *wrapper, size_t steps,
                         Error *err) {
    const char *name = settings->comm_hook;
    for (int i = 0; features[i]; i++) {
        const char *names = features[i]->hook_names;
        if (!names || !options_has_word(names, name)) continue;
        CommHook hook = features[i]->make_hook(name, &settings->each[i], wrapper, steps, err);
        return hook.name ? ddp_register_comm_hook(wrapper, hook, err) : -1;
    }
    return 0;
}

int features_add_to(const FeatureSettings *settings, Module *wrapper, size_t steps, Error *err) {
    for (int i = 0; features[i]; i++)
        if (settings->on[i] && features[i]->add_to) features[i]->add_to(wrapper);
    return register_hook(settings, wrapper, steps, err);
}
