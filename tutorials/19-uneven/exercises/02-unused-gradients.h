/* 02-unused-gradients.h: the mean of gradients that some ranks, or all of them, do not have.
 *
 * Not every backward reaches every parameter. If this rank's has not, has_grad is false, and grad
 * holds old numbers. After the reduction:
 *
 *     used by                 grad on every rank                          has_grad on every rank
 *     at least one rank       the sum of the users' gradients, divided    true
 *                             by the number of *all* ranks
 *     no rank                 the old numbers, as they were               false
 *
 * So every rank takes the same step, and the optimizer leaves parameters alone that no rank has
 * used: with zeros for gradients, weight decay and momentum would change them.
 *
 * No rank knows which parameters the others have used. Ask once, with one collective for all
 * parameters; then reduce the gradients that at least one rank has, each with one collective. All
 * ranks must call the same collectives in the same order.
 */
#ifndef TUTORIALS_UNUSED_GRADIENTS_H
#define TUTORIALS_UNUSED_GRADIENTS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count], the same list on all ranks; none is frozen or shared. Returns 0, or -1 with
// err filled.
int average_used(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err);

#endif
