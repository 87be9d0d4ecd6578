/* on_device.h: a part of a model that lives on another device (PyTorch's model parallelism: layers
 * `.to(dev1)` and `x.to(dev1)` in forward).
 *
 *     module_add(model, "net2", layer_on_device(layer_linear(second, 10, 5)));
 *
 * The input is copied to the part's device, the part runs there on a tape of its own, and its
 * output is copied back. On the caller's tape the whole part is one operation: its parameters
 * become ready together, when its backward has ended. The wrapper adds nothing to names and
 * checkpoints.
 */
#ifndef COMMON_NN_ON_DEVICE_H
#define COMMON_NN_ON_DEVICE_H

#include "common/nn/module.h"

// Takes the part, which has parameters, all on one device.
Module *layer_on_device(Module *part);

#endif
