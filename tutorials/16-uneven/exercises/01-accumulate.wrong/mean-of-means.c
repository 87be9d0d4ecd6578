/* This is the mean of means: rows of a small micro-batch count for too much. */
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    for (size_t i = 0; i < count; i++) gradient[i] = 0;
    for (size_t m = 0; m < batches; m++)
        for (size_t i = 0; i < count; i++)
            gradient[i] += micro[m].sums[i] / (float)micro[m].rows / (float)batches;
    return pg_run(group, pg_all_reduce(gradient, count, PG_F32, PG_AVG), err);
}
