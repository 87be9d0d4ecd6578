/* Your part: ask who has used which parameter, and average the gradients that a rank has. */
int average_used(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    (void)group, (void)parameters, (void)count, (void)err;
    return 0;
}
