/* Your part: broadcast every tensor from rank 0. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    (void)group, (void)tensors, (void)count, (void)err;
    return 0;
}
