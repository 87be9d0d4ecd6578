/* features.c: the list of features, and the calls to each of them.
 *
 * This list is the one place that names them. Features are attached in its order: one that decides
 * when gradients are ready comes before the ones that look at the result.
 */
#include "ddp/features/features.h"

#include <string.h>

#define FEATURES(FEATURE)            \
    FEATURE(sync_batch_norm)         \
    FEATURE(static_graph)            \
    FEATURE(unused_parameters)       \
    FEATURE(gradient_as_bucket_view) \
    FEATURE(comm_hooks)              \
    FEATURE(powersgd_hook)           \
    FEATURE(logging_data)

// ddp/NAME.c defines NAME_feature.
#define DECLARE(name) extern const DdpFeature name##_feature;
#define ADDRESS(name) &name##_feature,
FEATURES(DECLARE)
static const DdpFeature *const features[] = {FEATURES(ADDRESS) NULL};
_Static_assert(sizeof features / sizeof features[0] <= FEATURES_MAX + 1, "raise FEATURES_MAX");

void features_add_options(Options *options, DdpConfig *config, FeatureSettings *settings) {
    *settings = (FeatureSettings){.hook_names = "none", .comm_hook = "none"};
    for (int i = 0; features[i]; i++) {
        if (features[i]->options) features[i]->options(options, config, &settings->each[i]);
        if (!features[i]->hook_names) continue;
        size_t used = strlen(settings->hook_names);
        int more = snprintf(settings->hook_names + used, sizeof settings->hook_names - used, "|%s",
                            features[i]->hook_names);
        CHECK(used + (size_t)more < sizeof settings->hook_names, "too many communication hooks");
    }
    options_add_choice(options, "comm-hook", &settings->comm_hook, settings->hook_names,
                       "what is done with a full bucket (noop: nothing, the bound for "
                       "any network)");
}

int features_check(const Options *options, const DdpConfig *config, const FeatureSettings *settings,
                   Error *err) {
    for (int i = 0; features[i]; i++)
        if (features[i]->check && features[i]->check(options, config, settings->comm_hook, err))
            return -1;
    return 0;
}

int features_prepare(const FeatureSettings *settings, DdpConfig *config, Module *model,
                     ProcessGroup *group, Error *err) {
    for (int i = 0; features[i]; i++)
        if (features[i]->prepare &&
            features[i]->prepare(&settings->each[i], config, model, group, err))
            return -1;
    return 0;
}

void features_attach(Module *wrapper) {
    for (int i = 0; features[i]; i++)
        if (features[i]->attach) features[i]->attach(wrapper);
}

int features_register_hook(const FeatureSettings *settings, Module *wrapper, Error *err) {
    const char *name = settings->comm_hook;
    for (int i = 0; features[i]; i++) {
        const char *names = features[i]->hook_names;
        if (!names || !options_has_word(names, name)) continue;
        CommHook hook = features[i]->make_hook(name, &settings->each[i], wrapper, err);
        return hook.name ? ddp_register_comm_hook(wrapper, hook, err) : -1;
    }
    return 0;
}
