/* Not all ranks took part in the same collectives, so the others waited in vain. */
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    for (size_t batch = 0; batch < training->batches; batch++) {
        double mean = training->gradient(training->context, batch);
        if (pg_run(group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG), err) != 0) return -1;
        training->step(training->context, mean);
    }
    return 0;
}
