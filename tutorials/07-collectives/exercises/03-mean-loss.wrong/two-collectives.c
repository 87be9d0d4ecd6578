/* One collective is enough: send the sum and the number of rows together. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double all = sum, count = (double)rows;
    if (pg_run(group, pg_all_reduce(&all, 1, PG_F64, PG_SUM), err) != 0) return -1;
    if (pg_run(group, pg_all_reduce(&count, 1, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = count > 0 ? all / count : 0.0;
    return 0;
}
