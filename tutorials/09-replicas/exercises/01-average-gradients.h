/* 01-average-gradients.h: after backward, the gradients of all ranks become their mean.
 *
 * Go through the parameters in their order and call for each gradient
 *
 *     pg_run(group, pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG), err)
 *
 * There are two special cases:
 *
 * - A parameter may be frozen (requires_grad is false). It has no gradient, and grad may be NULL.
 *   It is frozen on every rank, so every rank can leave it out.
 * - A parameter may be shared by two layers (tied weights). Then the same Tensor is in the list
 *   twice. Average its gradient once: a second time would send all its bytes again.
 */
#ifndef TUTORIALS_AVERAGE_GRADIENTS_H
#define TUTORIALS_AVERAGE_GRADIENTS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count]. Called by all ranks with the same list. Returns 0, or -1 with err filled.
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err);

#endif
