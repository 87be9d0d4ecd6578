/* The mean has the seven digits of a float: add doubles, with PG_F64. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    float values[2] = {(float)sum, (float)rows};
    if (pg_run(group, pg_all_reduce(values, 2, PG_F32, PG_SUM), err) != 0) return -1;
    *mean = values[1] > 0 ? (double)(values[0] / values[1]) : 0.0;
    return 0;
}
