/* Rank 0 used 2 of its 4 batches: the rest of the data was thrown away. */
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    double least = (double)training->batches;
    if (pg_run(group, pg_all_reduce(&least, 1, PG_F64, PG_MIN), err) != 0) return -1;
    for (size_t batch = 0; batch < (size_t)least; batch++) {
        double mean = training->gradient(training->context, batch);
        if (pg_run(group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG), err) != 0) return -1;
        training->step(training->context, mean);
    }
    return 0;
}
