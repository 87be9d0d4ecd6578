/* Your part: the local sum, the all-reduce, and the division. */
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    (void)group, (void)micro, (void)batches, (void)gradient, (void)count, (void)err;
    return 0;
}
