/* All gradients were finite, and the step was skipped. */
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err) {
    float sum = 0;
    for (size_t i = 0; i < count; i++) sum += gradients[i];
    int32_t found = !isfinite(sum);
    if (pg_run(group, pg_all_reduce(&found, 1, PG_I32, PG_MAX), err) != 0) return -1;
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
