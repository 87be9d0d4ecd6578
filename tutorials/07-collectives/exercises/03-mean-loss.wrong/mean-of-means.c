/* This is the mean of the ranks' means: rows of a rank with few rows count for too much. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {rows > 0 ? sum / (double)rows : 0, rows > 0};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
