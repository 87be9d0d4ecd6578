/* One collective is enough: every rank can merge the three numbers of all. */
int merge_statistics(ProcessGroup *group, const double *rows, size_t count, double *mean,
                     double *var, Error *err) {
    double own[2] = {0, (double)count}, m2 = 0;
    for (size_t i = 0; i < count; i++) own[0] += rows[i];
    if (pg_run(group, pg_all_reduce(own, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = own[0] / own[1];
    for (size_t i = 0; i < count; i++) m2 += (rows[i] - *mean) * (rows[i] - *mean);
    if (pg_run(group, pg_all_reduce(&m2, 1, PG_F64, PG_SUM), err) != 0) return -1;
    *var = m2 / own[1];
    return 0;
}
