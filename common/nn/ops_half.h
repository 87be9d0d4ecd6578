/* ops_half.h: images that are stored in 16 bits, as PyTorch's autocast stores them (tape.h:
 * Tape.precision), on devices whose kernels know them (kernels.h: halves). The operations of ops.h
 * check what they are given, and hand such images over to these; nobody else calls them.
 *
 * A convolution begins such images. What follows it in 16 bits (batch norm, relu, sums, pooling,
 * upsampling, the shortcut) stays there; every other operation takes op_float32 of them.
 */
#ifndef COMMON_NN_OPS_HALF_H
#define COMMON_NN_OPS_HALF_H

#include "common/nn/ops.h"

// Does this tape's device store what convolutions make in 16 bits?
bool tape_stores_halves(const Tape *tape);

// x[n, c, h, w] in 16 bits: itself, or a rounded copy.
Tensor *op_half(Tape *tape, Tensor *x);

// The same as their namesakes in ops.h; x, residual, a and b are in 16 bits.
Tensor *half_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const Window *window);
Tensor *half_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state, bool relu,
                        Tensor *residual);
Tensor *half_relu(Tape *tape, Tensor *x); // in place
Tensor *half_add(Tape *tape, Tensor *a, Tensor *b);
Tensor *half_max_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_avg_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_shortcut(Tape *tape, Tensor *x, const Window *window);
Tensor *half_upsample2x(Tape *tape, Tensor *x, const Window *window);

#endif
