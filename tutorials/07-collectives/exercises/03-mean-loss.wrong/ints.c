/* 2 ranks: rank 0 has the mean 0, and it is 3. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)(int)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
