/* layers.h: the modules that models are built of. Sizes are as in PyTorch. All tensors are zero (of
 * batch and layer norm, weight and running_var are 1) until module_initialize.
 */
#ifndef COMMON_NN_LAYERS_H
#define COMMON_NN_LAYERS_H

#include <stdint.h>

#include "common/nn/module.h"
#include "common/nn/ops.h"

Module *layer_linear(Device *device, size_t in, size_t out); // with bias
// Linear and ReLU as one operation (op_linear_relu).
Module *layer_linear_relu(Device *device, size_t in, size_t out);
// *sum += layer(x), for a model's own forward: one operation, unless the layer's forward was
// replaced. Returns NULL; or, on a device that stores 16 bits, layer(x), a branch that is not yet
// added to *sum: the next layer_norm_add does that.
Tensor *layer_linear_add(Module *layer, Tape *tape, Tensor *x, Tensor **sum);
// gelu(layer(x)), for a model's own forward: one operation, unless a forward was replaced.
Tensor *layer_linear_gelu(Module *layer, Module *gelu, Tape *tape, Tensor *x);
Module *layer_linear_without_bias(Device *device, size_t in, size_t out);
Module *layer_conv2d(Device *device, size_t in, size_t out, size_t kernel, size_t stride,
                     size_t pad, bool bias);
Module *layer_batch_norm(Device *device, size_t channels); // 1d and 2d
BatchNormState layer_batch_norm_state(Module *module);     // the tensors of such a layer
// relu(layer(x) (+ residual)), for a model's own forward: one operation, unless the layer's forward
// was replaced (by a batch norm over all ranks). residual may be NULL.
Tensor *layer_batch_norm_relu(Module *layer, Tape *tape, Tensor *x, Tensor *residual);
Module *layer_norm(Device *device, size_t channels); // of rows [n, channels], eps 1e-5
// *sum += branch (NULL: nothing), and returns layer(*sum): one operation, unless the layer's
// forward was replaced.
Tensor *layer_norm_add(Module *layer, Tape *tape, Tensor **sum, Tensor *branch);
Module *layer_sequential(const char *type); // runs its children in order
Module *layer_activation(Activation f);
Module *layer_relu(void);
Module *layer_flatten(void);
Module *layer_max_pool(size_t kernel, size_t stride, size_t pad);
Module *layer_avg_pool(size_t kernel, size_t stride, size_t pad);

// PyTorch's default initialisation: weights and biases of linear and convolution layers uniform in
// +-1/sqrt(fan_in) (kaiming_uniform with a = sqrt 5); batch norm 1 and 0. The value of an element
// is a pure function of (seed, the parameter's place in the tree, the element).
void module_initialize(Module *module, uint64_t seed);
// Sets all tensors to the values that layers are created with: zeros; of a norm, weight and
// running_var ones. For tensors whose memory is new.
void module_fill_constants(Module *module);

#endif
