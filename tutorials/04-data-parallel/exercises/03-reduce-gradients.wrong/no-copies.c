/* A device read the memory of another one: what lies there must be copied first. */
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count) {
    size_t bytes = count * sizeof(float);
    float *arrived = device_alloc(devices[0], bytes);
    for (int i = 1; i < device_count; i++)
        for (size_t k = 0; k < count; k++) gradients[0][k] += gradients[i][k];
    device_free(devices[0], arrived, bytes);
}
