/* 01-error-feedback.h: the rounding error of a gradient is sent later, and not lost.
 *
 * Gradients are sent as integers, in multiples of `unit`. So each number is rounded to a multiple
 * of unit, and a gradient that is always smaller than half a unit would never be sent. Error
 * feedback repairs that. Every rank keeps, for each number, the error of its rounding:
 *
 *     wanted = gradient + error          this step's gradient, and the error of earlier steps
 *     sent   = wanted rounded to a multiple of unit: unit * nearbyint(wanted / unit)
 *     error  = wanted - sent             on this rank, for the next step
 *
 * The mean of `sent` over the ranks replaces the gradient. The integers are summed as PG_I32 with
 * PG_SUM; the mean is that sum times unit, divided by the number of ranks.
 */
#ifndef TUTORIALS_ERROR_FEEDBACK_H
#define TUTORIALS_ERROR_FEEDBACK_H

#include "ddp/group/process_group.h"

// gradient, error [count]: read and written; error is 0 before the first step. wire [count] is
// memory for the integers. Returns 0, or -1 with err filled.
int average_in_units(ProcessGroup *group, float *gradient, float *error, int32_t *wire,
                     size_t count, float unit, Error *err);

#endif
