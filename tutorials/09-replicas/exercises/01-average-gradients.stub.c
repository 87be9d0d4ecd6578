/* Your part: one all-reduce for each gradient. */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    (void)group, (void)parameters, (void)count, (void)err;
    return 0;
}
