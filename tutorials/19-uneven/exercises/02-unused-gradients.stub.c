/* Your part: exchange which parameters each rank has used, and average their gradients. */
int average_used(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    (void)group, (void)parameters, (void)count, (void)err;
    return 0;
}
