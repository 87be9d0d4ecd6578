/* 2 ranks: rank 0 has the mean -1000, and it is 0. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    if (values[1] > 0) *mean = values[0] / values[1];
    return 0;
}
