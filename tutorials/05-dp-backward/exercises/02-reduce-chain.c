/* 02-reduce-chain.c: from neighbour to neighbour. The task is in 02-reduce-chain.h. */
#include "tutorials/05-dp-backward/exercises/02-reduce-chain.h"

// SOLUTION BEGIN
void reduce_chain(Device *const *devices, float *const *gradients, int device_count, size_t count) {
    size_t bytes = count * sizeof(float);
    float *sum = gradients[device_count - 1]; // of the devices after i, memory of device i + 1
    for (int i = device_count - 2; i >= 0; i--) {
        float *arrived = device_alloc(devices[i], bytes);
        device_copy(devices[i], arrived, devices[i + 1], sum, bytes);
        if (i < device_count - 2) device_free(devices[i + 1], sum, bytes);
        float *to = i == 0 ? gradients[0] : arrived;
        for (size_t k = 0; k < count; k++) to[k] = gradients[i][k] + arrived[k];
        sum = arrived;
    }
    if (device_count > 1) device_free(devices[0], sum, bytes);
}
// SOLUTION END
