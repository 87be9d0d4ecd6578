/* ops_half.h: tensors that are stored in 16 bits, as PyTorch's autocast stores them (tape.h:
 * Tape.precision), on devices whose kernels know them (kernels.h: halves). The operations of ops.h
 * check what they are given, and hand such tensors over to these; nobody else calls them.
 *
 * A convolution, a linear layer or attention begins such tensors. What follows in 16 bits (batch
 * norm, relu, GELU, sums, pooling, upsampling, the shortcut) stays there; every other operation
 * takes op_float32 of them.
 */
#ifndef COMMON_NN_OPS_HALF_H
#define COMMON_NN_OPS_HALF_H

#include "common/nn/ops.h"

// Does this tape's device store what products make in 16 bits?
bool tape_stores_halves(const Tape *tape);

// x in 16 bits: itself, or a rounded copy.
Tensor *op_half(Tape *tape, Tensor *x);

// Linear layers, relu and attention are recorded by ops.c and ops_transformer.c, with these instead
// of the kernels of float32. A linear layer's product, where *saved becomes what its node keeps; x
// is in 16 bits:
Tensor *half_linear(Tape *tape, Tensor *x, const Tensor *weight, const Tensor *bias, LinearShape of,
                    void **saved);
void half_linear_weight_gradient(Tape *tape, const Node *node, const LinearGradient *to);
// relu: what a relu that made x has kept, or NULL
void half_linear_input_gradient(Tape *tape, const Node *node, const ReluMask *relu, void *dx,
                                bool accumulate);
void half_relu(Tape *tape, const Tensor *x); // in place
void half_relu_gradient(Tape *tape, const Tensor *y, void *dx, const void *dy, bool accumulate);
void half_attention(Tape *tape, Compute how, const Attention *of, const Tensor *qkv, Tensor *y,
                    void *saved);
void half_attention_gradient(Tape *tape, Compute how, const Attention *of, const Node *node,
                             const void *saved, void *dqkv, bool accumulate);

// Of rows in float32 and in 16 bits: in float32, as PyTorch promotes them.
Tensor *half_add_to(Tape *tape, Tensor *wide, Tensor *narrow);

// The same as their namesakes in ops.h; x, residual, a and b are in 16 bits.
Tensor *half_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const Window *window);
Tensor *half_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state, bool relu,
                        Tensor *residual);
Tensor *half_add(Tape *tape, Tensor *a, Tensor *b);
Tensor *half_gelu(Tape *tape, Tensor *x);
Tensor *half_max_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_avg_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_shortcut(Tape *tape, Tensor *x, const Window *window);
Tensor *half_upsample2x(Tape *tape, Tensor *x, const Window *window);

#endif
