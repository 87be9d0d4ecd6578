/* fsdp_options.h: train_fsdp's own options: those of ranks, as train_ddp has them, and the units.
 * Functions that return an int return 0, or -1 with err filled. */
#ifndef DDP_FSDP_FSDP_OPTIONS_H
#define DDP_FSDP_FSDP_OPTIONS_H

#include "ddp/ddp_options.h"
#include "ddp/fsdp/fully_shard.h"
#include "ddp/fsdp/own/own_wrapper.h"

typedef struct FsdpModules {
    Module **items;
    size_t count;
} FsdpModules;

typedef struct FsdpOptions {
    DdpOptions *ranks; // the program's: backend, normalize, sampler, timeout_s, no_overlap
    const char *units; // "blocks", "layers", "root"
    bool keep_whole, sync_batch_norm;
    const char *wrapper; // a file of the user's (ddp/fsdp/own); NULL: none
    // Set by fsdp_options_check:
    FsdpConfig config;
    const struct OwnFsdp *own; // the table of `wrapper`
    // Set by fsdp_build_model, until fsdp_fill_model:
    Device *shapes;     // of the model without memory
    FsdpModules chosen; // by --units, without the root
} FsdpOptions;

FsdpOptions fsdp_options_default(void);
// Appends rows bound to fsdp's fields and to those of `ranks`.
void fsdp_options(Options *options, FsdpOptions *fsdp, DdpOptions *ranks);
// Sets the derived fields of both, rejects options without effect beside --wrapper, and loads its
// file. 0, or -1 with err filled.
int fsdp_options_check(FsdpOptions *fsdp, const Options *options, Error *err);

// Returns the modules that --units names, children before their parents. blocks: a model's repeated
// blocks (Block, BasicBlock, ConvBlock), or if it has none its layers; layers: each module with a
// parameter of its own.
FsdpModules fsdp_choose_units(Module *model, const char *units);

#endif
