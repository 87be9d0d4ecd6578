/* fsdp_options.c: the options of fully_shard, and the units that they name. */
#include "ddp/fsdp/fsdp_options.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/own/own_file.h"
#include "ddp/fsdp/own/own_fsdp.h"

FsdpOptions fsdp_options_default(void) {
    return (FsdpOptions){.units = "blocks", .config = fsdp_config_default()};
}

void fsdp_options(Options *options, FsdpOptions *fsdp, DdpOptions *ranks) {
    fsdp->ranks = ranks;
    options_add_title(options, "fully_shard");
    options_add_choice(
        options, "units", &fsdp->units, "blocks|layers|root",
        "the parts that are gathered one by one: blocks, layers, or the whole model");
    options_add_flag(options, "no-reshard-after-forward", &fsdp->keep_whole,
                     "keep weights from forward to backward: fewer bytes moved, more memory");
    options_add_flag(options, "unshard-in-step", &fsdp->config.unshard_in_step,
                     "gather the root and its first unit from the optimizer on, not from "
                     "the next forward");
    options_add_flag(options, "sync-batch-norm", &fsdp->sync_batch_norm,
                     "batch norm over the rows of all ranks (SyncBatchNorm)");
    options_add_string(options, "wrapper", &fsdp->wrapper, "FILE",
                       "train with a wrapper of your own, C source or a shared object: "
                       "ddp/fsdp/own/own_fsdp.h");
    ddp_options_of_ranks(options, ranks);
}

int fsdp_options_check(FsdpOptions *fsdp, const Options *options, Error *err) {
    const OptionUse uses[] = {{"no-overlap|no-reshard-after-forward|unshard-in-step", false,
                               "--wrapper FILE decides that itself"}};
    ddp_options_derive(fsdp->ranks);
    fsdp->config.overlap = fsdp->ranks->config.overlap;
    fsdp->config.global_normalization = fsdp->ranks->config.global_normalization;
    if (fsdp->keep_whole) fsdp->config.reshard_after_forward = FSDP_RESHARD_NEVER;
    if (!fsdp->config.overlap && fsdp->config.unshard_in_step)
        return error_set(err, STATUS_USAGE, "--unshard-in-step has no effect: --no-overlap");
    if (!fsdp->wrapper) return 0;
    if (options_check_used(options, uses, sizeof uses / sizeof *uses, err) != 0) return -1;
    fsdp->own = own_file_load(fsdp->wrapper, "own_fsdp", OWN_FSDP_VERSION, sizeof(OwnFsdp), err);
    return fsdp->own ? 0 : -1;
}

// ---- units --------------------------------------------------------------------------------------

static bool is_block(const Module *module) {
    static const char *const TYPES[] = {"Block", "BasicBlock", "ConvBlock"};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(module->type, TYPES[i]) == 0) return true;
    return false;
}

// A layer whose own parameters are not shared with others.
static bool is_layer(const Module *module) {
    if (!module->forward || module->parameter_count == 0) return false;
    for (int i = 0; i < module->parameter_count; i++)
        if (module->parameters[i].tied || module->parameters[i].ties > 0) return false;
    return true;
}

static void choose(Module *module, bool (*wanted)(const Module *), FsdpModules *chosen) {
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        choose(child, wanted, chosen);
        if (!wanted(child)) continue;
        chosen->items = memory_grow(chosen->items, chosen->count + 1, sizeof(Module *));
        chosen->items[chosen->count++] = child;
    }
}

FsdpModules fsdp_choose_units(Module *model, const char *units) {
    FsdpModules chosen = {0};
    if (strcmp(units, "root") == 0) return chosen;
    if (strcmp(units, "blocks") == 0) choose(model, is_block, &chosen);
    if (chosen.count == 0) choose(model, is_layer, &chosen);
    return chosen;
}
