/* 01-sgd-step.h: the optimizer's step, written out.
 *
 * PyTorch's SGD does this with every weight w and its gradient g, once per step:
 *
 *     g = g + weight_decay * w
 *     m = momentum * m + g          in the very first step simply m = g
 *     w = w - lr * m
 *
 * m is the momentum buffer: one number per weight, kept from step to step. The learning rate is not
 * a factor of m, so that a changed rate has its full effect at once.
 *
 * Why it matters here: in DistributedDataParallel every rank takes this step on its own, and the
 * ranks' weights stay equal because all ranks apply the same operations to equal numbers.
 */
#ifndef TUTORIALS_SGD_STEP_H
#define TUTORIALS_SGD_STEP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct SgdSettings {
    float lr, momentum, weight_decay;
} SgdSettings;

// Updates weights [count] and momentum_buffer [count] in place; gradients [count] are only read.
// first_step: the contents of momentum_buffer are undefined before the call.
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step);

#endif
