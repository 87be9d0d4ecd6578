/* Your part: bring each device's gradients to the first, and add them there. */
void reduce_gradients(Device *const *devices, float *const *gradients, int device_count,
                      size_t count) {
    (void)devices, (void)gradients, (void)device_count, (void)count;
}
