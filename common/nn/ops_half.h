/* ops_half.h: tensors stored in 16 bits (table in tape.h), on devices with HalfKernels. For the
 * files of operations, and for dry_run.c, which counts their bytes.
 *
 * Convolution, linear, attention and layer norm create 16-bit tensors. Batch norm, activations,
 * sums, pooling, upsampling and the shortcut keep the type; every other operation converts with
 * op_float32. An image's shape is [n, c, h, w]; its memory order in 16 bits, and its gradient's, is
 * [n, h, w, c]. 2-D tensors stay row-major; their rows may be padded (Tensor.pitch).
 */
#ifndef COMMON_NN_OPS_HALF_H
#define COMMON_NN_OPS_HALF_H

#include "common/nn/ops.h"

#define HALVES(tape) device_kernels((tape)->device)->halves

// Returns whether this tape's device stores products' outputs in 16 bits.
bool tape_stores_halves(const Tape *tape);

// The type of products' outputs on this tape.
DType tape_product_dtype(const Tape *tape);

// Returns x in 16 bits: x itself, or a rounded copy.
Tensor *op_half(Tape *tape, Tensor *x);

// Returns x without padding in its rows: x itself, or op_float32(x).
Tensor *op_unpadded(Tape *tape, Tensor *x);

// The sizes that HalfKernels' narrow and widen take.
ImageSizes half_sizes(const Tensor *x);

// The gradient of a tensor in 16 bits, which has the tensor's type.
static inline uint16_t *half_gradient(const Tensor *x) {
    return (void *)x->grad;
}

// dx (+)= dy f'(x), all of them in x's type; x's memory contains the values that the forward saved.
void activation_gradient(Tape *tape, Activation f, const Tensor *x, float *dx, const float *dy,
                         bool accumulate);

#endif
