/* A collective that is started and waited for is one collective. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    double values[2] = {sum, (double)rows};
    PgWork *work = pg_start(group, pg_all_reduce(values, 2, PG_F64, PG_SUM), err);
    if (!work || pg_work_wait(work, NULL, NULL, err) != 0) return -1;
    *mean = values[1] > 0 ? values[0] / values[1] : 0.0;
    return 0;
}
