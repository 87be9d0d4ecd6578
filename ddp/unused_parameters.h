/* unused_parameters.h: find_unused_parameters: training when not every parameter is used in every
 * backward, and not the same ones on every rank.
 *
 * PyTorch walks the graph from the outputs at the end of forward. Here the tape knows at the
 * beginning of backward, from the loss itself, how many contributions every parameter will get:
 * those that will get none are unused. So an output that the loss does not depend on is no error
 * either. As in PyTorch, they are marked ready when the first gradient of this backward is; what
 * then becomes of their gradients is in used_map.h. The price: one small all-reduce per backward,
 * and buckets that are never rebuilt.
 */
#ifndef DDP_UNUSED_PARAMETERS_H
#define DDP_UNUSED_PARAMETERS_H

#include "ddp/reducer.h"

// For reducer_set_policy.
ReadyPolicy unused_parameters(Reducer *reducer);

#endif
