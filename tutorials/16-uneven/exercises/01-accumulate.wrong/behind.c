/* Something was written behind the gradient, which has 6 numbers. */
int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    for (size_t i = 0; i <= count; i++) gradient[i] = 0;
    for (size_t m = 0; m < batches; m++) {
        gradient[count] += (float)micro[m].rows;
        for (size_t i = 0; i < count; i++) gradient[i] += micro[m].sums[i];
    }
    if (pg_run(group, pg_all_reduce(gradient, count + 1, PG_F32, PG_SUM), err) != 0) return -1;
    for (size_t i = 0; i < count; i++) gradient[i] /= gradient[count];
    return 0;
}
