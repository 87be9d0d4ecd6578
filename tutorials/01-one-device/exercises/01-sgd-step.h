/* 01-sgd-step.h: the optimizer's step, written out.
 *
 * PyTorch's SGD does this with every weight w and its gradient g, once per step:
 *
 *     g = g + weight_decay * w
 *     m = momentum * m + g          in the very first step simply m = g
 *     w = w - lr * m
 *
 * m is the momentum buffer: one number per weight, which lives from step to step. Note where the
 * learning rate stands: outside of m, so that a changed rate acts at once.
 *
 * Why it matters here: in DistributedDataParallel every rank takes this step on its own, and the
 * ranks' weights stay equal because equal numbers go through equal operations.
 */
#ifndef TUTORIALS_SGD_STEP_H
#define TUTORIALS_SGD_STEP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct SgdSettings {
    float lr, momentum, weight_decay;
} SgdSettings;

// Changes weights [count] and momentum_buffer [count] in place; gradients [count] stay as they are.
// first_step: what is in momentum_buffer means nothing yet.
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step);

#endif
