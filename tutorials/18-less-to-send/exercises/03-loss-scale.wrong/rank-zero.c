/* One rank had an infinite gradient, and no rank skipped the step */
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err) {
    int32_t found = 0;
    for (size_t i = 0; i < count; i++) found |= !isfinite(gradients[i]);
    if (pg_run(group, pg_broadcast(&found, 1, PG_I32, 0), err) != 0) return -1;
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
