/* fsdp_options.c: the options of fully_shard, and the units that they name. */
#include "ddp/fsdp/fsdp_options.h"

#include <string.h>

#include "common/base/memory.h"

FsdpOptions fsdp_options_default(void) {
    return (FsdpOptions){.units = "blocks", .config = fsdp_config_default()};
}

void fsdp_options(Options *options, FsdpOptions *fsdp, DdpOptions *ranks) {
    fsdp->ranks = ranks;
    options_add_title(options, "fully_shard");
    options_add_choice(options, "units", &fsdp->units, "blocks|layers|root",
                       "what is gathered at a time: the model's blocks, its layers, or everything");
    options_add_flag(options, "no-reshard-after-forward", &fsdp->keep_whole,
                     "keep weights from forward to backward: fewer bytes moved, more memory");
    options_add_flag(options, "sync-batch-norm", &fsdp->sync_batch_norm,
                     "batch norm over the rows of all ranks (SyncBatchNorm)");
    ddp_options_of_ranks(options, ranks);
}

void fsdp_options_derive(FsdpOptions *fsdp) {
    ddp_options_derive(fsdp->ranks);
    fsdp->config.overlap = fsdp->ranks->config.overlap;
    fsdp->config.global_normalization = fsdp->ranks->config.global_normalization;
    if (fsdp->keep_whole) fsdp->config.reshard_after_forward = FSDP_RESHARD_NEVER;
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
