/* 02-clip-gradients.h: gradients that are too long are shortened, after the reduction.
 *
 * All gradients together are one long vector. Average it over the ranks, as in step 8; then, if its
 * length (the root of the sum of all squares) is over max_norm, multiply all of it by
 * max_norm / length. The averages are equal on all ranks, so are their lengths, and nothing more
 * has to be exchanged.
 *
 * As in step 8, a parameter may be frozen (requires_grad is false; what grad points to is old, and
 * stays as it is), and one that is shared by two layers stands in the list twice.
 */
#ifndef TUTORIALS_CLIP_GRADIENTS_H
#define TUTORIALS_CLIP_GRADIENTS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count], the same list on all ranks. Sets *norm, the length before clipping.
// Returns 0, or -1 with err filled.
int clip_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, double max_norm,
                   double *norm, Error *err);

#endif
