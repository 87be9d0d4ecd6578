/* Not all ranks took part in the same collectives, so the others waited in vain. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    *mean = 0.0;
    if (rows == 0) return 0;
    if (pg_run(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err) != 0) return -1;
    *mean = values[0] / values[1];
    return 0;
}
