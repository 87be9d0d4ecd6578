/* The mean has the few digits of a float */
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    for (size_t batch = 0;; batch++) {
        float sums[2] = {0, 0}; // of gradients; their number
        if (batch < training->batches) {
            sums[0] = (float)training->gradient(training->context, batch);
            sums[1] = 1;
        }
        if (pg_run(group, pg_all_reduce(sums, 2, PG_F32, PG_SUM), err) != 0) return -1;
        if (sums[1] == 0) return 0;
        training->step(training->context, (double)sums[0] / (double)sums[1]);
    }
}
