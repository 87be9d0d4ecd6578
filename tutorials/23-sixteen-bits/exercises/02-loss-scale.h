/* 02-loss-scale.h: the scale of fp16, adapted during training.
 *
 * The largest fp16 number is 65504, and numbers below about 3e-8 become 0. So gradients are
 * multiplied by a scale that is as large as possible. If any number of any rank's gradients is not
 * finite (infinite, or NaN), the scale was too large: the step is skipped on all ranks, and the
 * scale is halved. After `interval` good steps in a row it is doubled. The count of good steps
 * restarts after doubling and after a skipped step.
 *
 * gradients here are the rank's own, before the all-reduce, so that one rank may have an infinite
 * number and another none. All ranks must decide the same: a rank that skips a step alone has other
 * weights from then on. One all-reduce of a flag is enough.
 */
#ifndef TUTORIALS_LOSS_SCALE_H
#define TUTORIALS_LOSS_SCALE_H

#include "ddp/group/process_group.h"

typedef struct LossScale { // every rank has one, with the same numbers
    float scale;
    int good_steps, interval; // in a row, since the scale last changed; the number for doubling
} LossScale;

// gradients [count]. Updates the scale for the next step, and sets *skip. Returns 0, or -1 with err
// filled.
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err);

#endif
