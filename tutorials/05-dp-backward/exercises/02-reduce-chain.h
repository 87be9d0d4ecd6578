/* 02-reduce-chain.h: the same sum, and no device receives more than one gradient.
 *
 * In 01-reduce-gradients the first device receives the gradients of all others, and its link is the
 * bottleneck. Here each device receives from its right neighbour only: the sum begins at the last
 * device, each device adds its own gradients to what it received and sends the result on.
 *
 *     first <-- device 1 <-- device 2 <-- ... <-- last
 *
 *     sum = gradients[0] + (gradients[1] + (gradients[2] + ...))
 *
 * The order of the additions is another one than in 01, and so are the last bits. A device receives
 * into memory of its own, which you allocate with device_alloc(device, bytes) and free with
 * device_free(device, memory, bytes) as soon as its left neighbour has a copy of the sum.
 */
#ifndef TUTORIALS_REDUCE_CHAIN_H
#define TUTORIALS_REDUCE_CHAIN_H

#include "common/device/device.h"

// gradients[i], [count], is memory of devices[i]; both lists have device_count entries. On return
// gradients[0] holds the sum, and the others are unchanged.
void reduce_chain(Device *const *devices, float *const *gradients, int device_count, size_t count);

#endif
