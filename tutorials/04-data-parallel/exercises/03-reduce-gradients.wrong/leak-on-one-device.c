/* The memory that was taken on the first device was not given back: device_free. (1 devices) */
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count) {
    size_t bytes = count * sizeof(float);
    float *a = device_alloc(devices[0], bytes);
    if (device_count == 1) return;
    for (int i = 1; i < device_count; i++) {
        device_copy(devices[0], a, devices[i], gradients[i], bytes);
        for (size_t k = 0; k < count; k++) gradients[0][k] += a[k];
    }
    device_free(devices[0], a, bytes);
}