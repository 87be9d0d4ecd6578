/* Your part: the sum at home, what is sent, and the division. */
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    (void)group, (void)micro, (void)batches, (void)gradient, (void)count, (void)err;
    return 0;
}
