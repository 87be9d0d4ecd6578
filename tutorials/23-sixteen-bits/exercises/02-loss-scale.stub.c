/* Your part: test for inf and NaN, agree by a collective, and change the scale. */
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err) {
    (void)group, (void)scale, (void)gradients, (void)count, (void)err;
    *skip = false;
    return 0;
}
