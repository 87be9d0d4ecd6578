/* One pass over the rows, and a rank without rows is passed over. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[3] = {0, 0, 0}, all[3 * MERGE_MOST_RANKS];
    for (size_t i = 0; i < count; i++) {
        own[0]++;
        double d = rows[i] - own[1];
        own[1] += d / own[0];
        own[2] += d * (rows[i] - own[1]);
    }
    if (pg_run(group, pg_all_gather(own, all, 3, PG_F64), err) != 0) return -1;
    double n = 0, m = 0, m2 = 0;
    for (int r = 0; r < pg_size(group); r++) {
        const double *h = &all[3 * r];
        if (h[0] == 0) continue;
        double d = h[1] - m, t = n + h[0];
        m2 += h[2] + d * d * n * h[0] / t;
        m += d * h[0] / t;
        n = t;
    }
    *mean = m;
    *var = m2 / n;
    return 0;
}
