/* 01-reduce-gradients.h: the sum of the devices' gradients, on the first device.
 *
 * After backward there are gradients on every device. The optimizer is on the first one and needs
 *
 *     sum = ((gradients[0] + gradients[1]) + gradients[2]) + ...
 *
 * in this order. gradients[0] is on the first device and *is* the sum's memory already: add the
 * others to it. Gradients of another device must first be copied to the first device, into memory
 * that you allocate with device_alloc and free with device_free(device, memory, bytes). The devices
 * are CPU devices, so a plain loop can add memory of the first one.
 */
#ifndef TUTORIALS_REDUCE_GRADIENTS_H
#define TUTORIALS_REDUCE_GRADIENTS_H

#include "common/device/device.h"

// gradients[i], [count], is memory of devices[i]; both lists have device_count entries. On return
// gradients[0] holds the sum, and the others are unchanged.
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count);

#endif
