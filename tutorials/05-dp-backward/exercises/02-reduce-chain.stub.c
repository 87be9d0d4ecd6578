/* Your part: begin at the last device, and hand the sum from each device to its left neighbour. */
void reduce_chain(Device *const *devices, float *const *gradients, int device_count, size_t count) {
    (void)devices, (void)gradients, (void)device_count, (void)count;
}
