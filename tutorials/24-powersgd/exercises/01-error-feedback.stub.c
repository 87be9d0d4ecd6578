/* Your part: add the error, round, store the new error, average. */
int average_in_units(ProcessGroup *group, float *gradient, float *error, int32_t *wire,
                     size_t count, float unit, Error *err) {
    (void)group, (void)gradient, (void)error, (void)wire, (void)count, (void)unit, (void)err;
    return 0;
}
