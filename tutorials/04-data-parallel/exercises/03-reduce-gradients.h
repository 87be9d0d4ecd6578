/* 03-reduce-gradients.h: the sum of the devices' gradients, on the first device.
 *
 * Backward has left gradients on every device. The optimizer is on the first one and wants
 *
 *     sum = ((gradients[0] + gradients[1]) + gradients[2]) + ...
 *
 * in this order. gradients[0] lies on the first device and *is* the sum's memory already: add the
 * others to it. What lies on another device must be copied to the first before it can be added,
 * into memory that you take with device_alloc and give back with device_free(device, memory,
 * bytes). The devices are CPU devices, so what lies on the first one is added in a plain loop.
 */
#ifndef TUTORIALS_REDUCE_GRADIENTS_H
#define TUTORIALS_REDUCE_GRADIENTS_H

#include "common/device/device.h"

// gradients[i], [count], is memory of devices[i]; there are device_count of both. Afterwards
// gradients[0] holds the sum, and the others are as they were.
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count);

#endif
