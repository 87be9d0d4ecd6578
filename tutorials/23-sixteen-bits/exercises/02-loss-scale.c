/* 02-loss-scale.c: skipped by all or by none. The task is in 02-loss-scale.h. */
#include "tutorials/23-sixteen-bits/exercises/02-loss-scale.h"

#include <math.h>

// SOLUTION BEGIN
int update_scale(ProcessGroup *group, LossScale *scale, const float *gradients, size_t count,
                 bool *skip, Error *err) {
    int32_t found = 0;
    for (size_t i = 0; i < count; i++) found |= !isfinite(gradients[i]);
    if (pg_run(group, pg_all_reduce(&found, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *skip = found != 0;
    if (*skip) {
        scale->scale /= 2;
        scale->good_steps = 0;
    } else if (++scale->good_steps == scale->interval) {
        scale->scale *= 2;
        scale->good_steps = 0;
    }
    return 0;
}
// SOLUTION END
