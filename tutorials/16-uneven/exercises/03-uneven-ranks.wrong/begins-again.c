/* Rank 1 was asked for the gradient of a batch that it does not have. */
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    double most = (double)training->batches;
    if (pg_run(group, pg_all_reduce(&most, 1, PG_F64, PG_MAX), err) != 0) return -1;
    for (size_t batch = 0; batch < (size_t)most; batch++) {
        double mean = training->gradient(training->context, batch);
        if (pg_run(group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG), err) != 0) return -1;
        training->step(training->context, mean);
    }
    return 0;
}
