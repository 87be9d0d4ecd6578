/* Only rank 0 knows the mean; a reduce leaves the others with nothing. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    if (pg_run(group, pg_reduce(values, 2, PG_F64, PG_SUM, 0), err) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
