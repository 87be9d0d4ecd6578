/* ops.h: the operations a network is made of, each forward with its backward on the tape.
 *
 * All return a new activation, or NULL after recording an error on the tape (a shape that does not
 * fit, a label out of range). x may be NULL (an earlier operation failed). Formulas: kernels.h.
 */
#ifndef COMMON_NN_OPS_H
#define COMMON_NN_OPS_H

#include "common/nn/tape.h"

// x[n, in] weight[out, in] bias[out] or NULL -> [n, out]
Tensor *op_linear(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias);
// op_linear without bias. Where the device stores y in 16 bits, y's rows are padded in memory to a
// multiple of so many elements, which aligns the products (a vocabulary is seldom aligned). No
// result and no gradient depends on the padding.
Tensor *op_linear_padded(Tape *tape, Tensor *x, Tensor *weight, size_t multiple);
// op_relu(op_linear(...)), which a device may fuse.
Tensor *op_linear_relu(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias);
// op_activation(ACTIVATION_GELU, op_linear(...)), which a device that stores 16 bits fuses; there
// GELU is of the sum before it is rounded. bias is not NULL.
Tensor *op_linear_gelu(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias);
// op_add(residual, op_linear(...)), in one tensor; the gradient is not copied.
Tensor *op_linear_add(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, Tensor *residual);

// x[n, c, h, w] weight[k, c, r, r] bias[k] or NULL -> [n, k, oh, ow]
Tensor *op_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, size_t stride, size_t pad);

typedef struct BatchNormState { // one layer's tensors, each [c]
    Tensor *weight, *bias;
    Tensor *running_mean, *running_var;
    Tensor *num_batches_tracked; // I64 scalar
    float momentum, eps;         // PyTorch: 0.1, 1e-5
} BatchNormState;

// Returns x in float32: x itself, or a copy if it is in 16 bits (table in tape.h). For operations
// without a 16-bit kernel.
Tensor *op_float32(Tape *tape, Tensor *x);

// x[n, c] or [n, c, h, w] -> the same shape. While tape->training: batch statistics, and the
// running ones are updated in place. A batch with one value per channel is PyTorch's error.
Tensor *op_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state);
// relu(op_batch_norm(...) (+ residual of the same shape)): the same bits as the separate
// operations; a device may fuse their passes over memory.
Tensor *op_batch_norm_relu(Tape *tape, Tensor *x, const BatchNormState *state, Tensor *residual);
// Shared by all batch norms. The check returns false after recording an error.
bool batch_norm_check_input(Tape *tape, const char *op, const Tensor *x,
                            const BatchNormState *state);
void batch_norm_count_batch(const BatchNormState *state); // num_batches_tracked += 1
// Returns the kernels' arguments for a layer and its input x[n, c] or [n, c, h, w]. mean and invstd
// are NULL, and x is NULL if it is in 16 bits.
BatchNorm batch_norm_of(const Tensor *x, const BatchNormState *state);

// PyTorch's names of an activation: the function ("gelu") and the module ("GELU").
typedef struct ActivationName {
    const char *function, *module;
} ActivationName;
extern const ActivationName activation_names[ACTIVATIONS];

// y = f(x), of x's shape, in place: x's memory then holds the output (relu) or the values that the
// backward needs (the others), and an operation that is given x later fails. Where a backward needs
// x's values, x is copied first.
Tensor *op_activation(Tape *tape, Activation f, Tensor *x);
Tensor *op_relu(Tape *tape, Tensor *x);
Tensor *op_clone(Tape *tape, Tensor *x);          // a copy, to keep x from an operation in place
Tensor *op_add(Tape *tape, Tensor *a, Tensor *b); // same shapes
Tensor *op_flatten(Tape *tape, Tensor *x);        // [n, ...] -> [n, rest]
Tensor *op_max_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad);
Tensor *op_avg_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad);
// Every pixel becomes four: [n, c, h, w] -> [n, c, 2h, 2w] (PyTorch's nn.Upsample, "nearest").
Tensor *op_upsample2x(Tape *tape, Tensor *x);
// ResNet's shortcut without parameters ("option A"): every stride-th pixel, zero channels around.
Tensor *op_shortcut(Tape *tape, Tensor *x, size_t channels, size_t stride);

// Transformers. tokens[batch, length] I64, wte[vocabulary, c], wpe[longest, c] -> rows
// [batch length, c], each of wte for its token plus that of wpe for its position.
Tensor *op_embedding(Tape *tape, Tensor *tokens, Tensor *wte, Tensor *wpe);
Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias); // x[n, c], [c], [c]
// *sum = op_add(*sum, branch), and returns op_layer_norm of it: one pass over memory where the
// device stores 16 bits. branch may be NULL: nothing is added.
Tensor *op_add_layer_norm(Tape *tape, Tensor **sum, Tensor *branch, Tensor *weight, Tensor *bias);
// Causal attention: qkv[batch length, 3c], a token's query, key and value -> [batch length, c]
Tensor *op_attention(Tape *tape, Tensor *qkv, size_t length, size_t heads);

// Losses. The result is a scalar: the sum over this batch divided by `divisor`. The divisor is the
// number of rows (cross-entropy) or elements (squared error) of the batch that the mean is over:
// this batch's for PyTorch's default, the global batch's for DDP's --normalize global.
// logits[n, classes], target[n] I64
Tensor *op_cross_entropy(Tape *tape, Tensor *logits, Tensor *target, double divisor);
// op_cross_entropy, as the root of tape_backward, and hits[1], device memory: the number of rows
// whose largest logit is their target's (LossKernels.count_correct). If logits are recorded in
// bfloat16, one kernel computes both and the gradient, in the memory of the logits, which must have
// no other use: their data is NULL afterwards.
Tensor *op_cross_entropy_and_hits(Tape *tape, Tensor *logits, Tensor *target, double divisor,
                                  int64_t *hits);
// Independent binary labels per class: logits and target [n, classes], target between 0 and 1;
// pos_weight [classes] is the weight of the positive term (NULL: 1) and requires no gradient. The
// divisor counts elements (PyTorch's BCEWithLogitsLoss).
Tensor *op_binary_cross_entropy(Tape *tape, Tensor *logits, Tensor *target,
                                const Tensor *pos_weight, double divisor);
// labels[n] I64 -> [n, classes]: 1 for the label's class, 0 for the others. Requires no gradient.
Tensor *op_one_hot(Tape *tape, Tensor *labels, size_t classes);
// Hard-example mining (OHEM): the pixels that contribute to the loss of a batch.
typedef struct Mining {
    double threshold; // pixels whose loss is above it; -INFINITY: all
    size_t least;     // but at least this many, those of largest loss (if there are as many)
} Mining;
// logits[n, classes, h, w], target[n, h, w] I64, where a negative one means an ignored pixel.
// Returns the *sum* of the kept pixels' losses and sets *kept to their number; op_divide computes
// the mean. Two operations, because the divisor may be the sum of *kept over all ranks. If no pixel
// is kept, the loss and its gradient are 0. If mining is NULL, all pixels are kept.
Tensor *op_pixel_cross_entropy(Tape *tape, Tensor *logits, Tensor *target, const Mining *mining,
                               size_t *kept);
Tensor *op_divide(Tape *tape, Tensor *x, double divisor); // x is a scalar; divided by 0, it is 0
// x and target of the same shape
Tensor *op_squared_error(Tape *tape, Tensor *x, Tensor *target, double divisor);

// The mean of all elements, a scalar: for a DataParallel whose module returns its own loss, one per
// device.
Tensor *op_mean(Tape *tape, Tensor *x);

#endif
