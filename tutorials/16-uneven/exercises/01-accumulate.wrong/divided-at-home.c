/* a rank without rows has divided 0 by 0. */
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    double rows = 0;
    for (size_t i = 0; i < count; i++) gradient[i] = 0;
    for (size_t m = 0; m < batches; m++) {
        rows += (double)micro[m].rows;
        for (size_t i = 0; i < count; i++) gradient[i] += micro[m].sums[i];
    }
    for (size_t i = 0; i < count; i++) gradient[i] /= (float)rows;
    return pg_run(group, pg_all_reduce(gradient, count, PG_F32, PG_AVG), err);
}