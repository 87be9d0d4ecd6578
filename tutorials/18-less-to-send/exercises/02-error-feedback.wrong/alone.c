/* The gradients are as they were: nothing was averaged. */
int average_in_units(ProcessGroup *group, float *gradient, float *error, int32_t *wire,
                     size_t count, float unit, Error *err) {
    for (size_t i = 0; i < count; i++) {
        float wanted = gradient[i] + error[i];
        wire[i] = (int32_t)nearbyintf(wanted / unit);
        error[i] = wanted - unit * (float)wire[i];
    }
    (void)group, (void)err;
    return 0;
}
