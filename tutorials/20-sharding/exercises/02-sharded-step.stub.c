/* Your part: the mean of one part, its step, and the weights of all ranks. */
int sharded_step(ProcessGroup *group, float *weights, float *gradients, float *velocity,
                 size_t share, Error *err) {
    (void)group, (void)weights, (void)gradients, (void)velocity, (void)share, (void)err;
    return 0;
}
