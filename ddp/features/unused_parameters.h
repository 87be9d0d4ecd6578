/* unused_parameters.h: find_unused_parameters=True: training when not every parameter is used in
 * every backward, and not the same ones on every rank.
 */
#ifndef DDP_FEATURES_UNUSED_PARAMETERS_H
#define DDP_FEATURES_UNUSED_PARAMETERS_H

#include "common/nn/module.h"

// Lets a backward leave parameters out. To be called before the first forward. It changes nothing
// if the wrapper has a ReadyPolicy already, because that one knows what is unused.
void ddp_find_unused_parameters(Module *wrapper);

#endif
