/* What was copied went into memory that the first device did not give */
#include <stdlib.h>
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count) {
    size_t bytes = count * sizeof(float);
    float *a = malloc(bytes);
    for (int i = 1; i < device_count; i++) {
        device_copy(devices[0], a, devices[i], gradients[i], bytes);
        for (size_t k = 0; k < count; k++) gradients[0][k] += a[k];
    }
    free(a);
}