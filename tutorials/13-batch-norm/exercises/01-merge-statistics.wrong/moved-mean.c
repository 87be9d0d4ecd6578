/* d is the distance between the two means before the merge */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[3] = {(double)count, 0, 0}, all[3 * MERGE_MOST_RANKS];
    for (size_t i = 0; i < count; i++) own[1] += rows[i] / own[0];
    for (size_t i = 0; i < count; i++) own[2] += (rows[i] - own[1]) * (rows[i] - own[1]);
    if (pg_run(group, pg_all_gather(own, all, 3, PG_F64), err) != 0) return -1;
    double n = 0, m = 0, m2 = 0;
    for (int r = 0; r < pg_size(group); r++) {
        const double *h = all + 3 * r;
        if (h[0] == 0) continue;
        m = (n * m + h[0] * h[1]) / (n + h[0]);
        m2 += h[2] + (h[1] - m) * (h[1] - m) * n * h[0] / (n + h[0]);
        n += h[0];
    }
    *mean = m;
    *var = m2 / n;
    return 0;
}
