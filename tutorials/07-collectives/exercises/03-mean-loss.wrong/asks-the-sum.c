/* A sum that is not above 0 was taken for no rows: ask how many rows there are. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = values[0] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
