/* 02-clip-gradients.h: gradients of too large a norm are scaled down, after the reduction.
 *
 * All gradients together are one long vector. Average it over the ranks, as in step 9; then, if its
 * norm (the root of the sum of all squares) is over max_norm, multiply all of it by
 * max_norm / norm. The averages are equal on all ranks, and so are their norms: no further
 * collective is needed.
 *
 * As in step 9, a parameter may be frozen (requires_grad is false; its grad is outdated and must
 * not be changed), and one that is shared by two layers is in the list twice.
 */
#ifndef TUTORIALS_CLIP_GRADIENTS_H
#define TUTORIALS_CLIP_GRADIENTS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count], the same list on all ranks. Sets *norm, the norm before clipping.
// Returns 0, or -1 with err filled.
int clip_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, double max_norm,
                   double *norm, Error *err);

#endif
