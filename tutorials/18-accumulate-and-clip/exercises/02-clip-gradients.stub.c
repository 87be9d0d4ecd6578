/* Your part: the average, its norm, and the scaling. */
int clip_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, double max_norm,
                   double *norm, Error *err) {
    (void)group, (void)parameters, (void)count, (void)max_norm, (void)err;
    *norm = 0;
    return 0;
}
