/* Your part: every tensor of rank 0, for all. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    (void)group, (void)tensors, (void)count, (void)err;
    return 0;
}
