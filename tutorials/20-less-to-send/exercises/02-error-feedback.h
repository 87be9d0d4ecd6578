/* 02-error-feedback.h: what was not sent is not lost, but late.
 *
 * Gradients are sent as whole numbers: how many times `unit`. So each number is rounded to a
 * multiple of unit, and a gradient that is always smaller than half a unit would never be sent.
 * Error feedback repairs that. Every rank remembers, for each number, what it owes:
 *
 *     wanted = gradient + error          what is to be sent, and what is still owed
 *     sent   = wanted rounded to a multiple of unit: unit * nearbyint(wanted / unit)
 *     error  = wanted - sent             on this rank, for the next step
 *
 * What was sent is averaged over the ranks and becomes the gradient. The whole numbers travel as
 * PG_I32 with PG_SUM; the mean is that sum times unit, divided by the number of ranks.
 */
#ifndef TUTORIALS_ERROR_FEEDBACK_H
#define TUTORIALS_ERROR_FEEDBACK_H

#include "ddp/group/process_group.h"

// gradient, error [count]: read and written; error is 0 before the first step. wire [count] is
// memory for the numbers that travel. Returns 0, or -1 with err filled.
int average_in_units(ProcessGroup *group, float *gradient, float *error, int32_t *wire,
                     size_t count, float unit, Error *err);

#endif
