/* Gradients were sent for every micro-batch: that is what no_sync is to avoid. */
#include <string.h>

int accumulate(ProcessGroup *group, const MicroBatch *micro, size_t batches, float *gradient,
               size_t count, Error *err) {
    double rows = 0;
    float sent[64];
    double most = (double)batches;
    if (pg_run(group, pg_all_reduce(&most, 1, PG_F64, PG_MAX), err) != 0) return -1;
    memset(gradient, 0, count * sizeof *gradient);
    for (size_t m = 0; m < (size_t)most; m++) {
        for (size_t i = 0; i < count; i++) sent[i] = m < batches ? micro[m].sums[i] : 0;
        rows += m < batches ? (double)micro[m].rows : 0;
        if (pg_run(group, pg_all_reduce(sent, count, PG_F32, PG_SUM), err) != 0) return -1;
        for (size_t i = 0; i < count; i++) gradient[i] += sent[i];
    }
    if (pg_run(group, pg_all_reduce(&rows, 1, PG_F64, PG_SUM), err) != 0) return -1;
    for (size_t i = 0; i < count; i++) gradient[i] /= (float)rows;
    return 0;
}
