/* 3 ranks: rank 0 has the mean 1, and it is 1.76471. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    int64_t values[2] = {(int64_t)sum, (int64_t)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_I64, PG_SUM), err) != 0) return -1;
    *mean = values[1] > 0 ? (double)(values[0] / values[1]) : 0.0;
    return 0;
}
