/* 03-last-use.h: when is a gradient complete?
 *
 * Backward goes through the operations from the last to the first, and each adds to the gradients
 * of the parameters that it used. A parameter that two layers share is used twice, and its gradient
 * is complete only after the second addition. A bucket that started after the first would send half
 * of the gradient. Frozen and unused parameters get no gradient and never become complete.
 *
 * Given the parameter of each of backward's additions, in their order: in which order do the
 * gradients become complete?
 *
 *     additions 3 0 2 1 0, parameter 2 frozen:   3 1 0
 */
#ifndef TUTORIALS_LAST_USE_H
#define TUTORIALS_LAST_USE_H

#include <stdbool.h>
#include <stddef.h>

// additions [count] are numbers of parameters, frozen [parameters]; order has room for `parameters`
// numbers. Writes the parameters in the order in which their gradients become complete, and returns
// their number.
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order);

#endif
