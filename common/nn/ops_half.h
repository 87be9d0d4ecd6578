/* ops_half.h: operations on tensors stored in 16 bits (table in tape.h), on devices with
 * HalfKernels. Called by the operations of ops.h only, which check the arguments.
 *
 * Convolution, linear and attention create 16-bit tensors. Batch norm, activations, sums, pooling,
 * upsampling and the shortcut keep the type; every other operation converts with op_float32.
 */
#ifndef COMMON_NN_OPS_HALF_H
#define COMMON_NN_OPS_HALF_H

#include "common/nn/ops.h"

// Returns whether this tape's device stores products' outputs in 16 bits.
bool tape_stores_halves(const Tape *tape);

// Returns x in 16 bits: x itself, or a rounded copy.
Tensor *op_half(Tape *tape, Tensor *x);

// ops.c and ops_transformer.c record linear layers, activations and attention, and call these for
// tensors in 16 bits in place of the float32 kernels. half_linear computes the product of x (in 16
// bits) and sets *saved for the node: the weight in 16 bits.
Tensor *half_linear(Tape *tape, Tensor *x, const Tensor *weight, const Tensor *bias, LinearShape of,
                    void **saved);
void half_linear_weight_gradient(Tape *tape, const Node *node, const LinearGradient *to);
// relu: the mask of the relu that computed x, or NULL
void half_linear_input_gradient(Tape *tape, const Node *node, const ReluMask *relu, void *dx,
                                bool accumulate);
void half_activation(Tape *tape, Activation f, const Tensor *y, const Tensor *x);
void half_activation_gradient(Tape *tape, Activation f, const Tensor *x, void *dx, const void *dy,
                              bool accumulate);
void half_attention(Tape *tape, Compute how, const Attention *of, const Tensor *qkv, Tensor *y,
                    void *saved);
void half_attention_gradient(Tape *tape, Compute how, const Attention *of, const Node *node,
                             const void *saved, void *dqkv, bool accumulate);

// The sum of a float32 and a 16-bit tensor of rows, in float32 (PyTorch's type promotion).
Tensor *half_add_to(Tape *tape, Tensor *wide, Tensor *narrow);

// As the functions of the same names in ops.h; x, residual, a and b are in 16 bits.
Tensor *half_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const Window *window);
Tensor *half_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state, bool relu,
                        Tensor *residual);
Tensor *half_add(Tape *tape, Tensor *a, Tensor *b);
Tensor *half_max_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_avg_pool(Tape *tape, Tensor *x, const Window *window);
Tensor *half_shortcut(Tape *tape, Tensor *x, const Window *window);
Tensor *half_upsample2x(Tape *tape, Tensor *x, const Window *window);

#endif
