/* 02-sharded-step.h: from gradients to new weights, with the optimizer divided over the ranks.
 *
 * All weights are one array of W parts, [W, share], and so are the gradients of this rank's rows.
 * Rank r owns part r. A step is SGD with momentum, for each element of that part:
 *
 *     gradient = the mean of all ranks' gradients
 *     velocity = MOMENTUM velocity + gradient
 *     weight   = weight - RATE velocity
 *
 * velocity has `share` elements: a rank keeps the state of its own part only. On return all ranks
 * have all new weights, the same on every rank. Two collectives are needed: first each rank needs
 * the sum of its own part only, then every rank needs every part. An all-reduce would compute W
 * times as many sums as are used.
 *
 * pg_reduce_scatter and pg_all_gather (ddp/group/collective.h) may work in place: part `rank` of an
 * array [W, share] is then the result of the first and the operand of the second.
 */
#ifndef TUTORIALS_SHARDED_STEP_H
#define TUTORIALS_SHARDED_STEP_H

#include "ddp/group/process_group.h"

#define MOMENTUM 0.5f
#define RATE     0.25f

// weights, gradients: [W, share]; velocity: [share]. The gradients may be overwritten. Returns 0,
// or -1 with err filled.
int sharded_step(ProcessGroup *group, float *weights, float *gradients, float *velocity,
                 size_t share, Error *err);

#endif
