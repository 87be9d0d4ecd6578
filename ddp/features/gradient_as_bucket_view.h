/* gradient_as_bucket_view.h: gradient_as_bucket_view=False, PyTorch's default: gradients have
 * memory of their own beside the buckets. Without this feature they are views into the buckets.
 */
#ifndef DDP_FEATURES_GRADIENT_AS_BUCKET_VIEW_H
#define DDP_FEATURES_GRADIENT_AS_BUCKET_VIEW_H

#include "common/nn/module.h"

// Gives every parameter gradient memory of its own. Call it before the first forward.
void ddp_keep_gradients_beside_buckets(Module *wrapper);

#endif
