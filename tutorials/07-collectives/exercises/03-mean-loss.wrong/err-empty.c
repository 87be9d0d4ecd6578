/* It returned -1, and err says nothing: hand err on to what may fail */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    (void)err;
    double values[2] = {sum, (double)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), NULL) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
