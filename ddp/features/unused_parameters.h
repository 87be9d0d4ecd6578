/* unused_parameters.h: find_unused_parameters=True: training when not every parameter is used in
 * every backward, and not the same ones on every rank.
 */
#ifndef DDP_FEATURES_UNUSED_PARAMETERS_H
#define DDP_FEATURES_UNUSED_PARAMETERS_H

#include "common/nn/module.h"

// Allows a backward without some parameters. Call it before the first forward. No effect if the
// wrapper has a ReadyPolicy already, which determines the unused parameters itself.
void ddp_find_unused_parameters(Module *wrapper);

#endif
