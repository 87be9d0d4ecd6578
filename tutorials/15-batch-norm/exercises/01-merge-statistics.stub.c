/* Your part: each rank's three numbers, one all-gather, and the merging. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    (void)group, (void)rows, (void)count, (void)err;
    *mean = 0;
    *var = 0;
    return 0;
}
